package nft_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

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

// If all rows of a message have the same tag, the problem has that tag on all
// kernels.
func TestTagOfAllRows(t *testing.T) {
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	b.Tag(7)
	b.AddChain(&nft.Chain{Name: "new"})
	b.Tag(8)
	for i := range 100 {
		b.AddRow(service(s, nft.IPv4, i, "one"))
	}
	b.Tag(9)
	for i := range 100 {
		b.DeleteRow(service(s, nft.IPv4, i+1, ""))
	}
	if p := refused(t, c.Commit(b))[0]; p.Tag != 9 {
		t.Errorf("got problem %v with tag %d, want tag 9", p, p.Tag)
	}
}

// In an isolated batch every problem has a tag on all kernels.
func TestIsolate(t *testing.T) {
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	b.Isolate()
	for i := range 5 {
		b.Tag(uint32(i + 1))
		chain := "one"
		if i == 3 {
			chain = "nowhere"
		}
		b.AddRow(service(s, nft.IPv4, i, chain))
	}
	want := nft.Problem{Op: "add element", Object: "services 10.96.0.3 . tcp . 80", Tag: 4, Errno: unix.ENOENT}
	if got := refused(t, c.Commit(b)); len(got) != 1 || got[0] != want {
		t.Errorf("got problems %+v, want %+v", got, want)
	}
}
