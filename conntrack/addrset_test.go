package conntrack

import (
	"net/netip"
	"testing"
)

func TestAddrSetIsBounded(t *testing.T) {
	var former addrSet
	for i := range maxGone + 1000 {
		former.addMissing(newAddrSet([]netip.Addr{numbered(10, i)}), nil)
	}
	if len(former) != maxGone {
		t.Errorf("got %d recorded addresses, want %d", len(former), maxGone)
	}
}
