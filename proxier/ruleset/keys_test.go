package ruleset

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Keys are decoded as they were encoded.
func TestKeys(t *testing.T) {
	for f, addrs := range map[nft.Family][]netip.Addr{
		nft.IPv4: {addr("10.96.0.1"), addr("192.0.2.1"), addr("10.244.0.1")},
		nft.IPv6: {addr("fd00::1"), addr("2001:db8::1"), addr("fd01::1")},
	} {
		rules := newRuleset(t, Config{ServiceMetrics: ServiceMetricsAll}, f)
		target := Target{Addr: addrs[2], Port: 8080, Here: true}
		plan := &Plan{
			Service: &cluster.Service{}, Port: cluster.ServicePort{Protocol: cluster.UDP},
			Cluster: []Target{target, target}, Local: []Target{target},
			Sources: []netip.Prefix{netip.PrefixFrom(addrs[2], 16)}, Guarded: true,
		}
		for _, number := range []uint32{0, 7} {
			for _, frontend := range []ServedFrontend{
				{Frontend{addrs[0], 80, cluster.UDP}, ClusterIP, cluster.PolicyCluster},
				{Frontend{addrs[1], 80, cluster.UDP}, LoadBalancerIP, cluster.PolicyLocal},
				{Frontend{Port: 30080, Proto: cluster.UDP}, NodePort, cluster.PolicyLocal},
			} {
				plan.Number, plan.Frontends = number, []ServedFrontend{frontend}
				for _, row := range rules.Rows(nil, plan) {
					testKey(t, rules, row, number, frontend.Frontend, target.AddrPort())
				}
			}
		}
	}
}

// testKey tests that a row belongs to a frontend, a number, or an address.
func testKey(t *testing.T, rules *Ruleset, row nft.Row, number uint32, frontend Frontend, target netip.AddrPort) {
	t.Helper()
	if rules.IsShared(row.Set) {
		if got, ok := rules.SharedAddr(row.Set, row.Key); !ok || got != frontend.Addr && got != target.Addr() {
			t.Errorf("%s: got address %v, %v", row.Text(), got, ok)
		}
		return
	}
	if n := rules.NumberOf(row.Set, row.Key); n != 0 {
		if n != number {
			t.Errorf("%s: got number %d, want %d", row.Text(), n, number)
		}
		return
	}
	if got, ok := rules.FrontendOf(row.Set, row.Key); !ok || got != frontend {
		t.Errorf("%s: got frontend %v, %v; want %v", row.Text(), got, ok, frontend)
	}
	if row.Set.Name == OwnSet {
		if from, to, ok := TargetOf(rules.Family(), row); !ok || from != frontend || to != target {
			t.Errorf("%s: got %v to %v, %v; want %v to %v", row.Text(), from, to, ok, frontend, target)
		}
	}
	if row.Set.Name == NodePortSet {
		if port, ok := NodePortOf(row); !ok || port != frontend.Port {
			t.Errorf("%s: got NodePort %d, %v; want %d", row.Text(), port, ok, frontend.Port)
		}
	}
}
