package nft_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// The explanation of the kernel is part of the error. All kernels explain the
// refusal of a request. Linux 6.18 explains the refusal of a transaction, 6.12
// does not.
func TestKernelExplains(t *testing.T) {
	c := connect(t)
	const explanation = "Attribute failed policy validation"
	long := &nft.Table{Family: nft.IPv4, Name: strings.Repeat("x", 300)}
	_, _, err := c.FindTable(long)
	if want := ": numerical result out of range: " + explanation; !strings.HasSuffix(fmt.Sprint(err), want) {
		t.Errorf("FindTable: got %v, want the end %q", err, want)
	}
	if !errors.Is(err, unix.ERANGE) {
		t.Errorf("FindTable: got %v, want ERANGE", err)
	}
	b := nft.NewBatch(long)
	b.DeleteTable()
	p := refused(t, c.Commit(b))[0]
	if p.Errno != unix.ERANGE || (p.Message != explanation && (p.Message != "" || nstest.KernelAtLeast(t, 6, 18))) {
		t.Errorf("DeleteTable: got problem %v, want ERANGE and %q", p, explanation)
	}
}

// An error that means "unsupported" names the required kernel version.
func TestUnsupported(t *testing.T) {
	p := nft.Problem{Op: "add set", Object: "s", Errno: unix.EOPNOTSUPP}
	const want = "add set s: operation not supported (requires Linux 5.10 or later with nf_tables)"
	if got := p.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
