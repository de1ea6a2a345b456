package table

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

func TestNoLocalEndpoints(t *testing.T) {
	some := []ruleset.Target{{}}
	clusterIP := ruleset.Frontend{Addr: netip.MustParseAddr("10.96.0.1")}
	nodePort := ruleset.Frontend{Port: 30080}
	frontends := func(internal, external cluster.Policy) []ruleset.ServedFrontend {
		return []ruleset.ServedFrontend{{Frontend: clusterIP, Policy: internal}, {Frontend: nodePort, Policy: external}}
	}
	internal := frontends(cluster.PolicyLocal, cluster.PolicyCluster)
	external := frontends(cluster.PolicyCluster, cluster.PolicyLocal)
	both := frontends(cluster.PolicyLocal, cluster.PolicyLocal)
	for _, tt := range []struct {
		name string
		plan *ruleset.Plan
		want NoLocalEndpoints
	}{
		{"no plan", nil, NoLocalEndpoints{}},
		{"policy Cluster", &ruleset.Plan{Frontends: frontends(0, 0), Cluster: some}, NoLocalEndpoints{}},
		{"no endpoint", &ruleset.Plan{Frontends: both}, NoLocalEndpoints{}},
		{"an endpoint on this node", &ruleset.Plan{Frontends: both, Cluster: some, Local: some}, NoLocalEndpoints{}},
		{"internal", &ruleset.Plan{Frontends: internal, Cluster: some}, NoLocalEndpoints{Internal: 1}},
		{"external", &ruleset.Plan{Frontends: external, Cluster: some}, NoLocalEndpoints{External: 1}},
		{"no external frontend", &ruleset.Plan{Frontends: external[:1], Cluster: some}, NoLocalEndpoints{}},
		{"both", &ruleset.Plan{Frontends: both, Cluster: some}, NoLocalEndpoints{1, 1}},
	} {
		var got NoLocalEndpoints
		if got.add(tt.plan, 1); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
		if got.add(tt.plan, -1); got != (NoLocalEndpoints{}) {
			t.Errorf("%s: got %+v after the plan was removed, want none", tt.name, got)
		}
	}
}
