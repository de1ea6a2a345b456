package nft_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// inNamespace is set in the environment of a test program that runs in its
// own network namespace.
const inNamespace = "NFT_TEST_IN_NAMESPACE"

// TestMain runs the tests and examples in a new network namespace, so that
// they cannot change the tables of the host. Without root it also creates a
// user namespace, in which the kernel refuses the largest batch.
func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		os.Exit(m.Run())
	}
	os.Exit(runAgain())
}

func runAgain() int {
	runtime.LockOSThread() // Pdeathsig refers to the end of the thread
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	default:
		fmt.Fprintf(os.Stderr, "run the tests in a network namespace: %v\n", err)
		return 1
	}
}

// connect moves the test to a new network namespace and returns a connection
// to its nf_tables. The namespace ends with the thread of the test.
func connect(t testing.TB) *nft.Conn {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("create network namespace: %v", err)
	}
	return open(t)
}

// open returns another connection to nf_tables in the namespace of the test.
func open(t testing.TB) *nft.Conn {
	t.Helper()
	c, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

var families = []nft.Family{nft.IPv4, nft.IPv6}

// eachFamily runs a test for each family in a new network namespace.
func eachFamily(t *testing.T, test func(t *testing.T, f nft.Family, c *nft.Conn)) {
	for _, f := range families {
		t.Run(f.String(), func(t *testing.T) { test(t, f, connect(t)) })
	}
}
