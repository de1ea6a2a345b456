package follow

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// Ignored weights and small tables are reported, once for each state.
func TestBalanceEvents(t *testing.T) {
	plan := func(affinity time.Duration, targets, rows, weight int) *ruleset.Plan {
		p := &ruleset.Plan{Service: &cluster.Service{
			Name: cluster.ServiceName{Namespace: "ns", Name: "svc"}, AffinityTimeout: affinity,
		}}
		for i := range targets {
			p.Cluster = append(p.Cluster, ruleset.Target{
				Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Port: 80, Weight: cluster.WeightOf(weight),
			})
		}
		if rows > 0 {
			p.ClusterSlots = make([]uint16, rows)
		}
		return p
	}
	var recorded tabletest.Events
	follower := newBalanceEvents(&recorded)
	const (
		ignored = "ns/svc: weights of endpoints have no effect with sessionAffinity ClientIP"
		small   = "ns/svc: a hash table of 251 rows gives its endpoints unequal shares; " +
			"set the annotation nftproxy.io/hash-table-size to 512"
	)
	sticky := plan(time.Hour, 2, 0, 5)
	var want []string
	for _, step := range []struct {
		name   string
		commit table.Commit
		event  string // "" for none
	}{
		{"no annotations", table.Commit{Changes: []table.PortChange{{After: plan(0, 90, 0, 1)}}}, ""},
		{"affinity without weights", table.Commit{Changes: []table.PortChange{{After: plan(time.Hour, 2, 0, 1)}}}, ""},
		{"affinity with weights", table.Commit{Changes: []table.PortChange{{After: sticky}}}, ignored},
		{"the same", table.Commit{Whole: true, Changes: []table.PortChange{{After: sticky}}}, ""},
		{"25 endpoints", table.Commit{Changes: []table.PortChange{{After: plan(0, 25, 251, 1)}}}, ""},
		{"26 endpoints", table.Commit{Changes: []table.PortChange{{After: plan(0, 26, 251, 1)}}}, small},
		{"27 endpoints", table.Commit{Changes: []table.PortChange{{After: plan(0, 27, 251, 1)}}}, ""},
		{"a larger table", table.Commit{Changes: []table.PortChange{{After: plan(0, 27, 512, 1)}}}, ""},
		{"small again", table.Commit{Changes: []table.PortChange{{After: plan(0, 27, 251, 1)}}}, small},
		{"deleted", table.Commit{Changes: []table.PortChange{{Before: plan(0, 27, 251, 1)}}}, ""},
		{"no frontend", table.Commit{Changes: []table.PortChange{{}}}, ""},
		{"created", table.Commit{Changes: []table.PortChange{{After: plan(0, 27, 251, 1)}}}, small},
		{"all weights 0", table.Commit{Changes: []table.PortChange{{After: plan(0, 27, 0, 0)}}}, ""},
		{"the largest table", table.Commit{Changes: []table.PortChange{{After: plan(0, 7000, 65536, 2)}}}, ""},
	} {
		follower.committed(&step.commit)
		if step.event != "" {
			want = append(want, step.event)
		}
		var got []string
		for _, e := range recorded {
			got = append(got, e.Note)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: got events %q, want %q", step.name, got, want)
		}
	}
}
