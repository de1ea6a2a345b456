package lab_test

import (
	"fmt"
	"net"
	"os"
	"testing"
)

// In the environment these make the test program do something else than tests.
const (
	childTask   = "NFTPROXY_LAB_CHILD"
	childPrefix = "NFTPROXY_LAB_PREFIX"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childTask) {
	case "die":
		dieInLab(os.Getenv(childPrefix))
	case "addrs":
		printAddrs()
	default:
		os.Exit(m.Run())
	}
}

// printAddrs shows the addresses of the namespace that it runs in.
func printAddrs() {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(addrs)
}
