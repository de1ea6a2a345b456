package nft_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// Without CAP_NET_ADMIN the kernel refuses a transaction as a whole, and the
// system limits the size of the send buffer.
func TestWithoutCapability(t *testing.T) {
	t.Parallel()
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	before := list(t)
	var small, large, read error
	nstest.Unprivileged(t, func() {
		for i := 0; i == 0 || errors.Is(large, unix.EPERM); i++ {
			b.AddRow(service(s, nft.IPv4, i, "one"))
			if large = c.Commit(b); i == 0 {
				small = large
			}
			for range 1000 {
				b.AddRow(service(s, nft.IPv4, i, "one"))
			}
		}
		_, read = c.Generation()
	})
	want, text := nft.Problem{Op: "commit", Errno: unix.EPERM}, "commit table ip lb: operation not permitted"
	if p := refused(t, small); len(p) != 1 || p[0] != want || small.Error() != text {
		t.Errorf("got %v with problems %+v, want %s with %+v", small, p, text, want)
	}
	if !errors.Is(large, unix.EMSGSIZE) || !strings.HasPrefix(large.Error(), "commit table ip lb: send ") {
		t.Errorf("commit of a large batch: got %v, want EMSGSIZE", large)
	}
	if !errors.Is(read, unix.EPERM) {
		t.Errorf("Generation: got %v, want EPERM", read)
	}
	checkUnchanged(t, before)
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
