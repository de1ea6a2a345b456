package ruleset

import (
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Reach names the reason why connections reach no endpoint, for each policy.
func TestReach(t *testing.T) {
	targets := func(weights ...int) (all []Target) {
		for i, w := range weights {
			all = append(all, Target{Addr: addr("10.0.0.1"), Port: uint16(i + 1), Weight: cluster.WeightOf(w)})
		}
		return all
	}
	sticky := &cluster.Service{AffinityTimeout: 1} // weights have no effect
	for name, tt := range map[string]struct {
		service         *cluster.Service
		cluster, local  []Target
		all, onThisNode Reach
	}{
		"no endpoint":      {nil, nil, nil, Reach{0, NoEndpoints}, Reach{0, NoEndpoints}},
		"on another node":  {nil, targets(1), nil, Reach{1, ""}, Reach{0, NoLocalEndpoints}},
		"on this node":     {nil, targets(1, 1, 1), targets(1), Reach{3, ""}, Reach{1, ""}},
		"no weight":        {nil, targets(0, 0), targets(0), Reach{0, NoWeight}, Reach{0, NoWeight}},
		"no weight here":   {nil, targets(0, 2), targets(0), Reach{1, ""}, Reach{0, NoWeight}},
		"session affinity": {sticky, targets(0, 2), targets(0), Reach{2, ""}, Reach{1, ""}},
	} {
		p := &Plan{Service: &cluster.Service{}, Cluster: tt.cluster, Local: tt.local}
		if tt.service != nil {
			p.Service = tt.service
		}
		if err := p.setSlots(); err != nil {
			t.Fatal(err)
		}
		if got := p.Reach(cluster.PolicyCluster); got != tt.all {
			t.Errorf("%s: policy Cluster: got %+v, want %+v", name, got, tt.all)
		}
		if got := p.Reach(cluster.PolicyLocal); got != tt.onThisNode {
			t.Errorf("%s: policy Local: got %+v, want %+v", name, got, tt.onThisNode)
		}
	}
	if got := (*Plan)(nil).Reach(cluster.PolicyCluster); got.Reason != NoEndpoints {
		t.Errorf("no plan: got %+v", got)
	}
}
