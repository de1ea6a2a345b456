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
		"none":                 {nil, nil},
		"invalid":              {[]netip.Addr{{}}, nil},
		"sorted, each once":    {addrs("192.0.2.2", "192.0.2.1", "::ffff:192.0.2.2"), addrs("192.0.2.1", "192.0.2.2")},
		"all of IPv4":          {addrs("192.0.2.2", "0.0.0.0", "fd01::1"), addrs("0.0.0.0", "fd01::1")},
		"all of IPv6":          {addrs("192.0.2.2", "::", "fd01::1"), addrs("192.0.2.2", "::")},
		"all":                  {addrs("0.0.0.0", "::", "fd01::1"), addrs("0.0.0.0", "::")},
		"link-local with zone": {addrs("fe80::1%eth0"), addrs("fe80::1%eth0")},
	} {
		if got := normalize(tc.in); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestBindingNetwork(t *testing.T) {
	for at, want := range map[netip.AddrPort][2]string{
		netip.AddrPortFrom(netip.Addr{}, 31000):         {"tcp", ":31000"},
		netip.MustParseAddrPort("0.0.0.0:31000"):        {"tcp4", "0.0.0.0:31000"},
		netip.MustParseAddrPort("192.0.2.1:31000"):      {"tcp4", "192.0.2.1:31000"},
		netip.MustParseAddrPort("[::]:31000"):           {"tcp6", "[::]:31000"},
		netip.MustParseAddrPort("[fe80::1%eth0]:31000"): {"tcp6", "[fe80::1%eth0]:31000"},
	} {
		if network, address := (binding{at: at}).network(); [2]string{network, address} != want {
			t.Errorf("%v: %s %s, want %v", at, network, address, want)
		}
	}
}

func TestWanted(t *testing.T) {
	s, err := NewServiceServer(Config{Healthy: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	s.Set([]Service{
		{Namespace: "b", Name: "a", Port: 31001},
		{Namespace: "a", Name: "b", Port: 31000},
		{Namespace: "a", Name: "a"},
	})
	all := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.Addr{}, port) }
	want := []binding{{name{"a", "b"}, all(31000)}, {name{"b", "a"}, all(31001)}}
	if got := s.wanted(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.SetAddrs(addrs("fd01::1", "192.0.2.1"))
	want = []binding{
		{name{"a", "b"}, netip.MustParseAddrPort("192.0.2.1:31000")},
		{name{"a", "b"}, netip.MustParseAddrPort("[fd01::1]:31000")},
		{name{"b", "a"}, netip.MustParseAddrPort("192.0.2.1:31001")},
		{name{"b", "a"}, netip.MustParseAddrPort("[fd01::1]:31001")},
	}
	if got := s.wanted(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
