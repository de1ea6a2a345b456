package packet

import (
	"strings"
	"testing"
)

// TestConflicts shows services with the same address and port. The oldest
// owns it; each pair of another one and the owner is logged once, and the next
// oldest takes over.
func TestConflicts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const conflict = "AddressConflict"
	shared := service{name: "shared", protocols: "TCP UDP", number: 2}
	shared.setDefaults(c)
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
			if got := strings.Count(p.process.Log(), conflict); got != conflicts {
				t.Errorf("%s: got %d lines with %s in the log of %s, want %d", when, got, conflict, p.node, conflicts)
			}
		}
	}
	const each = 2 // families
	c.serve("young", young)
	owner("only one", "a1", 0)
	c.serve("old", old)
	owner("older one added", "b1", each)
	// Each has its other addresses.
	for server, s := range map[string]*service{"a1": young, "b1": old} {
		c.checks(s, "client -> clusterIP => "+server+" as node1").run(t)
	}
	young.metadata += "\nlabels: {team: web}"
	young.slices = []slice{{endpoints: "a2"}}
	c.serve("young", young)
	owner("younger one changed", "b1", each)
	c.remove("old")
	c.settle()
	owner("older one removed", "a2", each)
	c.serve("twin", twin)
	owner("one of the same age added", "a2", 2*each)
	c.remove("young")
	c.settle()
	owner("first of the two removed", "b2", 2*each)
	c.serve("old", old)
	c.serve("young", young)
	owner("all added", "b1", 4*each)
	c.remove("old")
	c.settle()
	owner("oldest removed", "a2", 4*each)

	// The owner does not depend on the order of events.
	c.serve("old", old)
	c.terminate()
	c.start()
	owner("restarted", "b1", 2*each)
	c.expectFresh(t, "after all changes")
}

// TestExternalIPOfNode shows an older service whose external IPs are the
// addresses of a node, with the NodePort of another service as its port.
func TestExternalIPOfNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := &service{name: "web", spec: "type: NodePort", endpoints: "a1", number: 2}
	addrs := c.Node1.Addrs()
	thief := &service{
		name: "thief", metadata: "creationTimestamp: 2020-05-01T00:00:00Z", spec: "externalIPs: " + list(addrs[:]),
		number: 3, endpoints: "b1", ports: []port{{name: "http", number: web.nodePort(0), target: firstTarget}},
	}
	c.serve("web", web)
	c.serve("thief", thief)
	c.checks(web, "client pod1 -> nodePort@node1 => a1 as node1").run(t)
	c.remove("web")
	c.settle()
	c.checks(web, "client -> nodePort@node1 => b1 as node1").run(t)
	c.serve("web", web)
	c.checks(web, "client pod1 -> nodePort@node1 => a1 as node1").run(t)
	c.expectFresh(t, "after all changes")
}
