package nft

import (
	"net/netip"
	"testing"
)

func TestPrefixBits(t *testing.T) {
	tests := []struct {
		first, last string
		bits        int
		ok          bool
	}{
		{"10.0.0.1", "10.0.0.1", 32, true},
		{"10.0.0.0", "10.0.0.1", 31, true},
		{"10.0.0.1", "10.0.0.2", 0, false},
		{"10.0.0.0", "10.0.0.2", 0, false},
		{"10.0.0.0", "10.0.0.255", 24, true},
		{"10.0.0.0", "10.0.0.254", 0, false},
		{"10.0.0.1", "10.0.0.255", 0, false},
		{"10.0.0.0", "10.127.255.255", 9, true},
		{"10.128.0.0", "10.255.255.255", 9, true},
		{"10.64.0.0", "10.191.255.255", 0, false},
		{"10.0.1.0", "10.255.255.255", 0, false},
		{"0.0.0.0", "255.255.255.255", 0, true},
		{"0.0.0.0", "127.255.255.255", 1, true},
		{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", 32, true},
		{"2001:db8::", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff", 33, true},
		{"2001:db8::1", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff", 0, false},
	}
	for _, tt := range tests {
		first, last := netip.MustParseAddr(tt.first).AsSlice(), netip.MustParseAddr(tt.last).AsSlice()
		if bits, ok := prefixBits(first, last); bits != tt.bits || ok != tt.ok {
			t.Errorf("%s-%s: got %d, %v; want %d, %v", tt.first, tt.last, bits, ok, tt.bits, tt.ok)
		}
	}
}

func TestLastAddr(t *testing.T) {
	tests := []struct{ prefix, last string }{
		{"0.0.0.0/0", "255.255.255.255"},
		{"0.0.0.0/1", "127.255.255.255"},
		{"10.0.0.0/8", "10.255.255.255"},
		{"10.128.0.0/9", "10.255.255.255"},
		{"192.0.2.4/30", "192.0.2.7"},
		{"192.0.2.4/31", "192.0.2.5"},
		{"192.0.2.4/32", "192.0.2.4"},
		{"::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"2001:db8::/33", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff"},
		{"2001:db8::/64", "2001:db8::ffff:ffff:ffff:ffff"},
		{"2001:db8::1/128", "2001:db8::1"},
	}
	for _, tt := range tests {
		if got := lastAddr(netip.MustParsePrefix(tt.prefix)); got.String() != tt.last {
			t.Errorf("%s: got %s, want %s", tt.prefix, got, tt.last)
		}
	}
}
