package table

import (
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

func TestNoLocalEndpoints(t *testing.T) {
	some := []ruleset.Target{{}}
	internal := &cluster.Service{InternalPolicy: cluster.PolicyLocal}
	external := &cluster.Service{ExternalPolicy: cluster.PolicyLocal}
	both := &cluster.Service{InternalPolicy: cluster.PolicyLocal, ExternalPolicy: cluster.PolicyLocal}
	for _, tt := range []struct {
		name string
		plan *ruleset.Plan
		want NoLocalEndpoints
	}{
		{"no plan", nil, NoLocalEndpoints{}},
		{"policy Cluster", &ruleset.Plan{Service: &cluster.Service{}, Cluster: some}, NoLocalEndpoints{}},
		{"no endpoint", &ruleset.Plan{Service: both}, NoLocalEndpoints{}},
		{"an endpoint on this node", &ruleset.Plan{Service: both, Cluster: some, Local: some}, NoLocalEndpoints{}},
		{"internal", &ruleset.Plan{Service: internal, Cluster: some}, NoLocalEndpoints{Internal: 1}},
		{"external", &ruleset.Plan{Service: external, Cluster: some}, NoLocalEndpoints{External: 1}},
		{"both", &ruleset.Plan{Service: both, Cluster: some}, NoLocalEndpoints{1, 1}},
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
