package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// lookUpLocal reports whether the kernel delivers packets to addr locally.
// Like a rule with `fib daddr type local`, it looks the address up in the
// routing tables (RTM_GETROUTE), so an address with only a local route is
// local, too.
func (c *Conn) lookUpLocal(addr netip.Addr) (local bool, err error) {
	err = request(c.routes, unix.RTM_GETROUTE, unix.NLM_F_ACK, familyOf(addr), func(w *nfnetlink.Writer) {
		// struct rtmsg is 8 bytes longer than struct nfgenmsg, and starts with
		// the family and the length of the prefix.
		w.Buf[len(w.Buf)-3] = uint8(addr.BitLen())
		w.Buf = append(w.Buf, make([]byte, 8)...)
		w.Addr(unix.RTA_DST, unix.RTA_DST, addr)
	}, func(msg nfnetlink.Message) error {
		const typeAt = nfnetlink.MessageHeaderLen + 7 // rtm_type
		local = len(msg) > typeAt && msg[typeAt] == unix.RTN_LOCAL
		return nil
	})
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EINVAL): // no route exists
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look up the route to %v: %w", addr, err)
	}
	return local, nil
}

// localAddrs caches for the duration of one pass which addresses are local.
type localAddrs struct {
	conn  *Conn
	known map[netip.Addr]bool
	err   error // of the lookup that failed
}

// maxLocalAddrs bounds the memory for known addresses.
const maxLocalAddrs = 4096

// contains looks up each address once. If a lookup fails, the pass is
// retried later. For the rest of the pass, the addresses that are not known
// yet count as not local, so their flows stay. Further lookups would fail,
// too, and each can take as long as answerTimeout.
func (l *localAddrs) contains(addr netip.Addr) bool {
	local, ok := l.known[addr]
	if ok || l.err != nil {
		return local
	}
	if local, l.err = l.conn.lookUpLocal(addr); l.err != nil {
		return false
	}
	if l.known == nil || len(l.known) >= maxLocalAddrs {
		l.known = make(map[netip.Addr]bool)
	}
	l.known[addr] = local
	return local
}
