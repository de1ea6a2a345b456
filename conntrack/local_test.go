package conntrack

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// After a failed lookup, a pass does not look up further addresses, and its
// error does not grow.
func TestLocalAddrsStopAtAnError(t *testing.T) {
	asked := 0
	var s script
	for range 50 {
		s = append(s, func(seq uint32) []byte { asked++; return refused(unix.ENOBUFS)(seq) })
	}
	l := localAddrs{conn: &Conn{routes: s.socket(t)}, known: map[netip.Addr]bool{addr("192.0.2.1"): true}}
	for i := range 50 {
		if got := l.contains(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})); got != (i == 1) {
			t.Errorf("192.0.2.%d is local: %v", i, got)
		}
	}
	if asked != 1 || !errors.Is(l.err, unix.ENOBUFS) {
		t.Errorf("%d lookups, %v", asked, l.err)
	}
}
