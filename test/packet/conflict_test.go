package packet

import (
	"strings"
	"testing"
)

// TestConflicts lets services ask for the same address and port: the oldest has it, the others are told once and take over
// when it goes.
func TestConflicts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const conflict = "AddressConflict"
	shared := service{name: "shared", protocols: "TCP UDP", number: 2}
	shared.allot(c)
	spec := "externalIPs: " + view{service: &shared, cluster: c}.ExternalIPs()
	named := func(name, created, endpoint string, number int) *service {
		return &service{
			name: name, number: number, metadata: "creationTimestamp: " + created, spec: spec,
			slices: []slice{{endpoints: endpoint}},
		}
	}
	young := named("a-young", "2024-05-01T00:00:00Z", "a1", 3)
	old := named("z-old", "2020-05-01T00:00:00Z", "b1", 4)
	twin := named("b-twin", "2024-05-01T00:00:00Z", "b2", 5)
	owner := func(when, server string, conflicts int) {
		t.Helper()
		c.checks(&shared, "client pod1 -> externalIP => "+server+" as node1").run(t)
		for _, p := range c.proxies {
			if got := strings.Count(p.log.current(), conflict); got != conflicts {
				t.Errorf("%s: the log of %s has %d lines with %s, want %d", when, p.node, got, conflict, conflicts)
			}
		}
	}
	// In both families and protocols, there is one conflict each.
	const each = 4
	c.serve("young", young)
	owner("alone", "a1", 0)
	c.serve("old", old)
	owner("an older one came", "b1", each)
	// All that is not in dispute, all of them have.
	for server, s := range map[string]*service{"a1": young, "b1": old} {
		c.checks(s, "client -> clusterIP => "+server+" as node1").run(t)
	}
	young.metadata += "\nlabels: {team: web}"
	young.slices = []slice{{endpoints: "a2"}}
	c.serve("young", young)
	owner("the younger one changed", "b1", each)
	c.remove("old")
	c.settle()
	owner("the older one went", "a2", each)
	c.serve("twin", twin)
	owner("one of the same age came", "a2", 2*each)
	c.remove("young")
	c.settle()
	owner("the first of the two went", "b2", 2*each)
	c.serve("old", old)
	c.serve("young", young)
	owner("all came back", "b1", 4*each)
	c.remove("old")
	c.settle()
	owner("the oldest went again", "a2", 4*each)

	// Who has it does not depend on who came first.
	c.serve("old", old)
	c.terminate()
	c.start()
	owner("restarted", "b1", 2*each)
	c.expectFresh(t, "after all")
}
