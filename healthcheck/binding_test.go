package healthcheck

import (
	"net/netip"
	"slices"
	"testing"
)

func TestNormalize(t *testing.T) {
	for name, tc := range map[string]struct {
		in, want []netip.Addr
	}{
		"no addresses":         {nil, nil},
		"invalid":              {[]netip.Addr{{}}, nil},
		"sorted, repeated":     {addrs("192.0.2.2", "192.0.2.1", "::ffff:192.0.2.2"), addrs("192.0.2.1", "192.0.2.2")},
		"all of IPv4":          {addrs("192.0.2.2", "0.0.0.0", "fd01::1"), addrs("0.0.0.0", "fd01::1")},
		"all of IPv6":          {addrs("192.0.2.2", "::", "fd01::1"), addrs("192.0.2.2", "::")},
		"all":                  {addrs("0.0.0.0", "::", "fd01::1"), addrs("0.0.0.0", "::")},
		"link-local with zone": {addrs("fe80::1%eth0"), addrs("fe80::1%eth0")},
	} {
		if got := normalize(tc.in); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestListenArgs(t *testing.T) {
	for at, want := range map[netip.AddrPort][2]string{
		netip.AddrPortFrom(netip.Addr{}, 31000):         {"tcp", ":31000"},
		netip.MustParseAddrPort("0.0.0.0:31000"):        {"tcp4", "0.0.0.0:31000"},
		netip.MustParseAddrPort("192.0.2.1:31000"):      {"tcp4", "192.0.2.1:31000"},
		netip.MustParseAddrPort("[::]:31000"):           {"tcp6", "[::]:31000"},
		netip.MustParseAddrPort("[fe80::1%eth0]:31000"): {"tcp6", "[fe80::1%eth0]:31000"},
	} {
		if network, address := (binding{at: at}).listenArgs(); [2]string{network, address} != want {
			t.Errorf("%v: got %s %s, want %v", at, network, address, want)
		}
	}
}
