package lab_test

import (
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
	default:
		os.Exit(m.Run())
	}
}
