package lab_test

import (
	"fmt"
	"net"
	"os"
	"testing"
)

// Environment variables that make the test program a child process of a test.
const (
	childTask   = "NFTPROXY_LAB_CHILD"
	childPrefix = "NFTPROXY_LAB_PREFIX"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childTask) {
	case "kill":
		killInLab(os.Getenv(childPrefix))
	case "addrs":
		printAddrs()
	default:
		os.Exit(m.Run())
	}
}

// printAddrs prints the addresses of the namespace of the process.
func printAddrs() {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(addrs)
}
