package packet

import "testing"

// TestHints shows that hints restrict traffic to endpoints for a zone or a
// node, and that a change of the node's zone takes effect.
func TestHints(t *testing.T) {
	t.Parallel()
	c := newIdleCluster(t, defaultFlags()...)
	const east, west = "topology.kubernetes.io/zone: east", "topology.kubernetes.io/zone: west"
	c.write("nodes", c.nodeManifests(map[string]string{"node1": east, "node2": west}))
	c.start()
	all := []scenario{
		{
			service: service{name: "zones", spec: "type: NodePort", endpoints: "a1:zone=east b1:zone=west"},
			expect: `
				pod1 node1 -> clusterIP => a1 as itself
				pod2 node2 -> clusterIP => b1 as itself
				client -> nodePort@node1 => a1 as node1
				client -> nodePort@node2 => b1 as node2
			`,
		},
		{
			service: service{name: "shared", endpoints: "a1:zone=east,zone=west b1:zone=west a2:zone=east"},
			expect: `
				pod1 -> clusterIP => a1 a2 as itself
				pod2 -> clusterIP => a1 b1 as itself
			`,
		},
		{
			service: service{name: "zone-incomplete", endpoints: "a1:zone=east b1"},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			service: service{name: "zone-elsewhere", endpoints: "a1:zone=west b1:zone=west"},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			// Hints of endpoints that are not ready are ignored.
			service: service{name: "zone-unready",
				endpoints: "a1:zone=east,unready a2:unready b1:zone=west b2:zone=east"},
			expect: `
				pod1 -> clusterIP => b2 as itself
				pod2 -> clusterIP => b1 as itself
			`,
		},
		{
			// Without ready endpoints, hints are ignored.
			service: service{name: "zone-terminating", endpoints: "a1:zone=east,terminating b1:zone=west,terminating"},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			service: service{name: "nodes", endpoints: "a1:node=node1,zone=west b1:node=node2,zone=east"},
			expect: `
				pod1 -> clusterIP => a1 as itself
				pod2 -> clusterIP => b1 as itself
			`,
		},
		{
			service: service{name: "nodes-elsewhere", endpoints: "a1:node=node3,zone=east b1:node=node3,zone=west"},
			expect: `
				pod1 -> clusterIP => a1 as itself
				pod2 -> clusterIP => b1 as itself
			`,
		},
		{
			service: service{name: "nodes-incomplete", endpoints: "a1:node=node1 b1"},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			// Hints apply to the traffic of pods, but not to traffic with
			// policy Local.
			service: service{
				name: "local", spec: "type: NodePort\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
				endpoints: "a1:zone=west b1:zone=east",
			},
			expect: `
				client -> nodePort@node1 => a1 as itself
				client -> nodePort@node2 => b1 as itself
				pod1 -> clusterIP => a1 as itself
				pod1 -> nodePort@node1 => b1 as itself
				node1 -> nodePort@node1 => b1 as node1
				pod2 -> nodePort@node2 => a1 as itself
			`,
		},
	}
	c.runScenarios(t, all)

	zones := &all[0]
	relabel := func(name, labels, expect string) {
		t.Run(name, func(t *testing.T) {
			c.write("nodes", c.nodeManifests(map[string]string{"node1": labels, "node2": west}))
			c.settle()
			c.checks(&zones.service, expect).run(t)
		})
	}
	relabel("zone changes", west, `
		pod1 pod2 node1 -> clusterIP => b1 as itself
		client -> nodePort@node1 => b1 as node1`)
	relabel("zone is removed", "", `
		pod1 -> clusterIP => a1 b1 as itself
		pod2 -> clusterIP => b1 as itself`)
	relabel("zone is set", east, zones.expect)
}
