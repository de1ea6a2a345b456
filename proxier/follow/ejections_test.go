package follow

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// Begun and ended ejections are reported once, and that too many endpoints are
// ejected. Endpoints that the API removes are not reported.
func TestEjectionEvents(t *testing.T) {
	at := func(i int) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80) }
	plan := func(open bool, targets []int, ejected ...int) *ruleset.Plan {
		p := &ruleset.Plan{Service: &cluster.Service{Name: cluster.ServiceName{Namespace: "ns", Name: "svc"}}}
		for _, i := range targets {
			p.Cluster = append(p.Cluster, ruleset.Target{Addr: at(i).Addr(), Port: 80})
		}
		if open || len(ejected) > 0 {
			p.Ejected = &ruleset.Ejected{Open: open}
		}
		for _, i := range ejected {
			e := cluster.Ejection{Endpoint: at(i), Attempts: 3, Clients: 2, Probes: 2}
			p.Ejected.Cluster = append(p.Ejected.Cluster, e)
		}
		return p
	}
	var recorded tabletest.Events
	total := metric.NewSet().FamilyCounter("test", "")
	follower := newEjectionEvents(&Config{NodeName: "n1", Events: &recorded}, total, nft.IPv4)
	for _, step := range []struct {
		name  string
		plan  *ruleset.Plan // nil: the service port is deleted
		event string        // "" for none
	}{
		{"nothing", plan(false, []int{1, 2, 3}), ""},
		{"one", plan(false, []int{2, 3}, 1), "Endpoint 10.0.0.1:80 of service port ns/svc: no new connections from " +
			"node n1, because of no answers (3 attempts of 2 clients unanswered, 2 probes lost)"},
		{"the same", plan(false, []int{2, 3}, 1), ""},
		{"again", plan(false, []int{1, 2, 3}),
			"Endpoint 10.0.0.1:80 of service port ns/svc: new connections from node n1 again"},
		{"many", plan(false, []int{1, 2, 3, 4, 5, 6}, 11, 12, 13, 14, 15, 16), "Endpoints 10.0.0.11:80, " +
			"10.0.0.12:80, 10.0.0.13:80, 10.0.0.14:80, 10.0.0.15:80 and 1 more of service port"},
		{"removed by the API", plan(false, []int{1, 2, 3, 4, 5, 6}), ""},
		{"open", plan(true, []int{1, 2, 3}),
			"More than half of the endpoints of service port ns/svc do not answer node n1"},
		{"still open", plan(true, []int{1, 2, 3}), ""},
		{"ejected", plan(false, []int{2, 3}, 1), "Endpoint 10.0.0.1:80"},
		{"open again", plan(true, []int{1, 2, 3}), "More than half"},
		{"deleted", nil, ""},
		{"new", plan(false, []int{1, 2}), ""},
	} {
		change := table.PortChange{After: step.plan}
		if step.plan == nil {
			change.Before = plan(false, nil)
		}
		before := len(recorded)
		follower.committed(&table.Commit{Family: nft.IPv4, Changes: []table.PortChange{change}})
		var notes []string
		for _, e := range recorded[before:] {
			notes = append(notes, e.Note)
		}
		got := strings.Join(notes, "; ")
		if !strings.HasPrefix(got, step.event) || step.event == "" && got != "" {
			t.Errorf("%s: got %q, want %q", step.name, got, step.event)
		}
	}
	if got := recorded[0].Reason; got != cluster.ReasonEjected {
		t.Errorf("got reason %s", got)
	}
}
