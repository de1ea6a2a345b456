package nft_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Without CAP_NET_ADMIN the kernel refuses a transaction as a whole, and the
// system limits the size of the send buffer.
func TestWithoutCapability(t *testing.T) {
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	before := list(t)
	b.AddRow(service(s, nft.IPv4, 1, "one"))
	dropCapabilities(t)
	checkError(t, c.Commit(b), "commit table ip lb: operation not permitted")
	if p := checkProblem(t, c, b, "commit: operation not permitted"); p.Op != "commit" || p.Object != "" {
		t.Errorf("got problem %+v, want operation commit without object", p)
	}
	limit := sendBufferLimit(t)
	for i := 0; b.Len() <= limit; i++ {
		b.AddRow(service(s, nft.IPv4, i, "one"))
	}
	err := c.Commit(b)
	if !errors.Is(err, unix.EMSGSIZE) || !strings.HasPrefix(err.Error(), "commit table ip lb: send ") {
		t.Errorf("commit of a large batch: got %v, want EMSGSIZE", err)
	}
	if _, err := c.Generation(); !errors.Is(err, unix.EPERM) {
		t.Errorf("Generation: got %v, want EPERM", err)
	}
	checkUnchanged(t, before)
}

// sendBufferLimit returns the largest send buffer without capabilities.
func sendBufferLimit(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<30); err != nil {
		t.Fatal(err)
	}
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// dropCapabilities drops all capabilities of the thread. Programs that it
// runs have the capabilities of root.
func dropCapabilities(t *testing.T) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective, data[1].Effective = 0, 0
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
}

func TestClosed(t *testing.T) {
	c := connect(t)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b := nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "t"})
	b.AddTable("")
	if err := c.Commit(b); !errors.Is(err, unix.EBADF) || errors.Is(err, nft.ErrUnknownOutcome) {
		t.Errorf("Commit: got %v, want EBADF", err)
	}
	if _, err := c.Generation(); !errors.Is(err, unix.EBADF) {
		t.Errorf("Generation: got %v, want EBADF", err)
	}
}
