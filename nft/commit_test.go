package nft_test

import (
	"errors"
	"fmt"
	"net/netip"
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

// The kernel identifies the refused row of a message that has many. Before
// Linux 6.1 the tag can be unknown, but it is never wrong.
func TestTagOfRefusedRow(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		b, s := newServices(t, c, f)
		const rows = 2000 // in several messages
		for _, wrong := range []int{0, 1, rows / 2, rows - 1} {
			b.Reset()
			for i := range rows {
				b.Tag(uint32(1000 + i))
				chain := "one"
				if i == wrong {
					chain = "nowhere"
				}
				b.AddRow(service(s, f, i, chain))
			}
			checkTag(t, refused(t, c.Commit(b)), "add element", vip(f, wrong), uint32(1000+wrong))

			b.Reset()
			for i := range rows {
				b.Tag(uint32(1000 + i))
				if i != wrong {
					b.AddRow(service(s, f, i, "one"))
				}
			}
			for i := range rows {
				b.Tag(uint32(5000 + i))
				b.DeleteRow(service(s, f, i, ""))
			}
			checkTag(t, refused(t, c.Commit(b)), "delete element", vip(f, wrong), uint32(5000+wrong))
		}
	})
}

func checkTag(t *testing.T, problems []nft.Problem, op string, addr netip.Addr, tag uint32) {
	t.Helper()
	if len(problems) != 1 {
		t.Fatalf("got %d problems, want 1: %v", len(problems), problems)
	}
	want := nft.Problem{Op: op, Object: fmt.Sprintf("services %s . tcp . 80", addr), Tag: tag, Errno: unix.ENOENT}
	unknown := nft.Problem{Op: op, Object: "services", Errno: unix.ENOENT}
	if got := problems[0]; got != want && (got != unknown || nstest.KernelAtLeast(t, 6, 1)) {
		t.Errorf("got problem %+v, want %+v", got, want)
	}
}
