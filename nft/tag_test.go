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
