package ruleset

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

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
