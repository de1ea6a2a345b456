package nft

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFamily(t *testing.T) {
	tests := []struct {
		addr       string
		family     Family
		ipv4, ipv6 bool
	}{
		{"10.0.0.1", IPv4, true, false},
		{"fd00::1", IPv6, false, true},
		{"fe80::1%eth0", IPv6, false, true},
		{"::ffff:10.0.0.1", IPv6, false, false},
	}
	for _, tt := range tests {
		a := netip.MustParseAddr(tt.addr)
		if FamilyOf(a) != tt.family || IPv4.Of(a) != tt.ipv4 || IPv6.Of(a) != tt.ipv6 || Family(0).Of(a) {
			t.Errorf("got family %s, of ip %v, of ip6 %v; want %+v", FamilyOf(a), IPv4.Of(a), IPv6.Of(a), tt)
		}
	}
	if !IPv4.Valid() || !IPv6.Valid() || Family(0).Valid() || Family(unix.NFPROTO_INET).Valid() {
		t.Error("got other valid families, want ip and ip6")
	}
	if a, b, c := IPv4.AddrLen(), IPv6.AddrLen(), Family(0).AddrLen(); a != 4 || b != 16 || c != 0 {
		t.Errorf("got lengths of addresses %d, %d, %d; want 4, 16, 0", a, b, c)
	}
}
