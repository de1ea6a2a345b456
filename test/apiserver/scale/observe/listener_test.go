package observe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TestListenerHears feeds it with messages of two transactions.
func TestListenerHears(t *testing.T) {
	l := &Listener{addrs: map[[4]byte]*Commit{}}
	one := l.Expect(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"))
	other := l.Expect(netip.MustParseAddr("10.0.0.3"))
	row := func(data ...byte) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM}, Data: data}
	}
	committed := netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN}}
	first, second := time.Unix(1, 0), time.Unix(2, 0)

	l.hear(row(0, 0, 0, 0, 10, 0, 0, 2, 1, 1), first)
	l.hear(row(0, 0, 10, 0, 0, 3, 0, 0), first) // not where a value can be
	if len(one.At) > 0 {
		t.Error("told of before the transaction is committed")
	}
	l.hear(committed, first)
	l.hear(row(10, 0, 0, 1), second) // of what is told already
	l.hear(row(10, 0, 0, 3), second)
	l.hear(committed, second)
	for i, c := range []*Commit{one, other} {
		if want := []time.Time{first, second}[i]; len(c.At) != 1 || !(<-c.At).Equal(want) {
			t.Errorf("commit %d is not told of, or not at %s", i, want)
		}
	}
}
