package ruleset

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func TestConfigValidate(t *testing.T) {
	bit := 32
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{}, ""},
		{Config{MasqueradeBit: &bit}, "masqueradeBit: 32 is not in the range from 0 to 31"},
		{Config{DetectLocal: LocalDetection{Mode: "Magic"}}, `detectLocalMode: "Magic" is not supported: ` +
			`supported are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix`},
		{Config{DetectLocal: LocalDetection{Mode: DetectLocalBridgeInterface}},
			`detectLocal.bridgeInterface: "" is not the name of an interface`},
		{Config{DetectLocal: LocalDetection{
			Mode:         DetectLocalClusterCIDR,
			ClusterCIDRs: []netip.Prefix{prefix("10.0.0.0/8"), prefix("11.0.0.0/8")},
		}}, "clusterCIDR: 10.0.0.0/8 and 11.0.0.0/8 are of the same family, only one a family is supported"},
	} {
		got := ""
		if err := tt.config.Validate(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// prefixes parses CIDRs that are separated by spaces.
func prefixes(values string) (all []netip.Prefix) {
	for _, v := range strings.Fields(values) {
		all = append(all, prefix(v))
	}
	return all
}

func TestFrontendsOf(t *testing.T) {
	svc := &cluster.Service{
		Families:   []nft.Family{nft.IPv4},
		ClusterIPs: []netip.Addr{addr("10.96.0.1"), addr("fd00:96::1")}, ExternalPolicy: cluster.PolicyLocal,
		ExternalIPs:     []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2"), addr("2001:db8::1")},
		LoadBalancerIPs: []netip.Addr{addr("192.0.2.2")},
	}
	port := cluster.ServicePort{Protocol: cluster.UDP, Port: 53, NodePort: 30053}
	got := FrontendsOf(nft.IPv4, svc, port)
	at := func(ip string) Frontend { return Frontend{addr(ip), 53, cluster.UDP} }
	want := []ServedFrontend{
		{at("10.96.0.1"), ClusterIP, cluster.PolicyCluster},
		{at("192.0.2.2"), LoadBalancerIP, cluster.PolicyLocal}, // the external IP is the same
		{at("192.0.2.1"), ExternalIP, cluster.PolicyLocal},
		{Frontend{Port: 30053, Proto: cluster.UDP}, NodePort, cluster.PolicyLocal},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := FrontendsOf(nft.IPv6, svc, port); got != nil {
		t.Errorf("IPv6 of an IPv4 Service: got %v, want none", got)
	}
}

// The endpoint of a slot depends neither on the order of the targets nor on
// targets of weight 0.
func TestSlots(t *testing.T) {
	targets := []Target{{Addr: addr("10.0.0.7"), Weight: cluster.WeightOf(0)}}
	for i := range 20 {
		targets = append(targets, Target{Addr: netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), Port: 80})
	}
	rows := func(targets []Target) []Target {
		p := &Plan{Service: &cluster.Service{Balance: cluster.BalanceSourceHash}, Cluster: targets, Slots: 251}
		if err := p.setSlots(); err != nil {
			t.Fatal(err)
		}
		return p.Rows(cluster.PolicyCluster)
	}
	reversed := slices.Clone(targets)
	slices.Reverse(reversed)
	want := rows(targets[1:])
	if len(want) != 251 {
		t.Errorf("got %d slots, want 251", len(want))
	}
	for name, targets := range map[string][]Target{"with weight 0": targets, "reversed": reversed} {
		if !slices.Equal(rows(targets), want) {
			t.Errorf("%s: other targets have the slots", name)
		}
	}
}
