package conntrack

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// After a failed lookup, a pass does not look up further addresses, and its
// error does not grow.
func TestLocalAddrsStopAfterError(t *testing.T) {
	routes := slices.Repeat(script{refused(unix.ENOBUFS)}, 50).socket(t)
	l := localAddrs{conn: &Conn{routes: routes}, known: map[netip.Addr]bool{addr("192.0.2.1"): true}}
	for i := range 50 {
		if got := l.contains(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})); got != (i == 1) {
			t.Errorf("192.0.2.%d: got local %v, want %v", i, got, i == 1)
		}
	}
	if lookups := routes.Seq; lookups != 1 || !errors.Is(l.err, unix.ENOBUFS) {
		t.Errorf("got %d lookups, %v, want 1, %v", routes.Seq, l.err, unix.ENOBUFS)
	}
}

func TestLookUpLocal(t *testing.T) {
	c := newNode(t).open(t)
	for a, want := range map[string]bool{
		"192.0.2.1":    true,
		"192.0.2.2":    true,
		"127.0.0.1":    true,
		"fd01::1":      true,
		"::1":          true,
		"198.51.100.7": false,
		"203.0.113.7":  false, // no route
		"fd01::2":      false,
		"192.0.2.255":  false,
	} {
		if got, err := c.lookUpLocal(addr(a)); got != want || err != nil {
			t.Errorf("%s: got local %v, %v, want %v", a, got, err, want)
		}
	}
}
