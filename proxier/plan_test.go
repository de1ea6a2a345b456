package proxier

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

func TestSourcesFor(t *testing.T) {
	lb := []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}
	node := &Node{IPs: []netip.Addr{addr("172.30.0.11"), addr("fd00:30::11")}}
	for _, tt := range []struct {
		name    string
		ranges  []netip.Prefix
		want    []netip.Prefix
		guarded bool
	}{
		{"no ranges", nil, nil, false},
		{"none that makes sense", []netip.Prefix{}, nil, true},
		{"ranges of the other family only", []netip.Prefix{prefix("2001:db8::/32")}, nil, false},
		{"one", []netip.Prefix{prefix("198.51.100.0/24")}, []netip.Prefix{prefix("198.51.100.0/24")}, true},
		{"host bits", []netip.Prefix{prefix("198.51.100.7/24")}, []netip.Prefix{prefix("198.51.100.0/24")}, true},
		{"one within another, twice", []netip.Prefix{prefix("10.1.0.0/16"), prefix("10.0.0.0/8"), prefix("10.0.0.0/8"), prefix("11.0.0.0/8")},
			[]netip.Prefix{prefix("10.0.0.0/8"), prefix("11.0.0.0/8")}, true},
		{"all", []netip.Prefix{prefix("10.1.0.0/16"), prefix("0.0.0.0/0")}, []netip.Prefix{prefix("0.0.0.0/0")}, true},
		{"this node's address", []netip.Prefix{prefix("172.30.0.0/24")}, []netip.Prefix{prefix("172.30.0.0/24"), prefix("192.0.2.1/32")}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, guarded := sourcesFor(nft.IPv4, &Service{LoadBalancerIPs: lb, SourceRanges: tt.ranges}, node)
			if !slices.Equal(got, tt.want) || guarded != tt.guarded {
				t.Errorf("got %v, guarded %v; want %v, %v", got, guarded, tt.want, tt.guarded)
			}
		})
	}
}

func TestFrontendsOf(t *testing.T) {
	svc := &Service{
		Families:   []nft.Family{nft.IPv4},
		ClusterIPs: []netip.Addr{addr("10.96.0.1"), addr("fd00:96::1")}, ExternalPolicy: PolicyLocal,
		ExternalIPs:     []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2"), addr("2001:db8::1")},
		LoadBalancerIPs: []netip.Addr{addr("192.0.2.2")},
	}
	port := ServicePort{Protocol: UDP, Port: 53, NodePort: 30053}
	got := frontendsOf(nft.IPv4, svc, port)
	at := func(ip string) frontend { return frontend{addr(ip), 53, UDP} }
	want := []servedFrontend{
		{at("10.96.0.1"), clusterIP, PolicyCluster},
		{at("192.0.2.2"), loadBalancerIP, PolicyLocal}, // guarded by source ranges, although it is an external IP too
		{at("192.0.2.1"), externalIP, PolicyLocal},
		{frontend{port: 30053, proto: UDP}, nodePortFrontend, PolicyLocal},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := frontendsOf(nft.IPv6, svc, port); got != nil {
		t.Errorf("IPv6 of a Service that has IPv4 only: %v", got)
	}
}

func TestConfigValidate(t *testing.T) {
	bit := func(n int) *int { return &n }
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{NodeName: "n"}, ""},
		{Config{}, "nodeName: must not be empty"},
		{Config{NodeName: "n", MasqueradeBit: bit(32)}, "masqueradeBit: 32 is not in the range from 0 to 31"},
		{Config{NodeName: "n", SyncPeriod: -1}, "syncPeriod: -1ns is less than 0\nminSyncPeriod: 0s is not in the range from 0 to syncPeriod (-1ns)"},
		{Config{NodeName: "n", NodeIPs: []netip.Addr{{}}}, "nodeIPs[0]: invalid IP is not the address of a node"},
		{Config{NodeName: "n", DetectLocal: LocalDetection{Mode: "Magic"}},
			`detectLocalMode: "Magic" is not supported: supported are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix`},
		{Config{NodeName: "n", DetectLocal: LocalDetection{Mode: DetectLocalBridgeInterface}},
			`detectLocal.bridgeInterface: "" is not the name of an interface`},
		{Config{NodeName: "n", DetectLocal: LocalDetection{Mode: DetectLocalClusterCIDR, ClusterCIDRs: []netip.Prefix{prefix("10.0.0.0/8"), prefix("11.0.0.0/8")}}},
			"clusterCIDR: 10.0.0.0/8 and 11.0.0.0/8 are of the same family, only one a family is supported"},
	} {
		got := ""
		if err := tt.config.validate(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestParseNodePortAddresses(t *testing.T) {
	for _, tt := range []struct {
		values []string
		err    string
	}{
		{nil, ""}, {[]string{"primary"}, ""}, {[]string{"10.0.0.0/8", "::/0"}, ""},
		{[]string{"primary", "10.0.0.0/8"}, `nodePortAddresses[0]: "primary" must stand alone`},
		{[]string{"10.0.0.0/8", "10.0.0.1"}, `nodePortAddresses[1]: "10.0.0.1" is neither "primary" nor a CIDR`},
	} {
		_, err := ParseNodePortAddresses(tt.values)
		if got := errorText(err); got != tt.err {
			t.Errorf("%q: got %q, want %q", tt.values, got, tt.err)
		}
	}
	a, err := ParseNodePortAddresses([]string{"10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	if primary, all := a.of(nft.IPv4); primary || all {
		t.Errorf("IPv4: primary %v, all %v; want the CIDR", primary, all)
	}
	if primary, all := a.of(nft.IPv6); primary || !all {
		t.Errorf("IPv6, of which no CIDR was given: primary %v, all %v; want all", primary, all)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseBalancer(t *testing.T) {
	for k := range balancerKinds {
		for _, n := range []int{1, 3, 1000} {
			want := balancer{k, n}
			if got, ok := parseBalancer(want.name()); !ok || got != want {
				t.Errorf("%s: got %v, %v", want.name(), got, ok)
			}
		}
	}
	for _, name := range []string{"", "balance-", "balance-0", "balance-03", "balance-3x", "balance--1", "external-local", "nodeport-local", "affinity/a/b/tcp/balance-3"} {
		if got, ok := parseBalancer(name); ok {
			t.Errorf("%q is taken for %v", name, got)
		}
	}
}
