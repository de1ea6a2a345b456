package packet

import "testing"

// TestHints shows how hints narrow endpoints to those for a zone or a node, and that the node's zone is followed while
// it changes.
func TestHints(t *testing.T) {
	t.Parallel()
	c := newIdleCluster(t, defaultFlags()...)
	const east, west = "topology.kubernetes.io/zone: east", "topology.kubernetes.io/zone: west"
	c.write("nodes", c.nodeManifests(map[string]string{"node1": east, "node2": west}))
	c.start()
	all := []scenario{
		{
			service: service{name: "zones", spec: "type: NodePort", slices: []slice{{endpoints: "a1:zone=east b1:zone=west"}}},
			expect: `
				pod1 node1 -> clusterIP => a1 as itself
				pod2 node2 -> clusterIP => b1 as itself
				client -> nodePort@node1 => a1 as node1
				client -> nodePort@node2 => b1 as node2
			`,
		},
		{
			service: service{name: "shared", slices: []slice{{endpoints: "a1:zone=east,zone=west b1:zone=west a2:zone=east"}}},
			expect: `
				pod1 -> clusterIP => a1 a2 as itself
				pod2 -> clusterIP => a1 b1 as itself
			`,
		},
		{
			service: service{name: "zone-incomplete", slices: []slice{{endpoints: "a1:zone=east b1"}}},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			service: service{name: "zone-elsewhere", slices: []slice{{endpoints: "a1:zone=west b1:zone=west"}}},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			// What is not ready needs no hint, and gives none.
			service: service{name: "zone-unready", slices: []slice{{endpoints: "a1:zone=east,unready a2:unready b1:zone=west b2:zone=east"}}},
			expect: `
				pod1 -> clusterIP => b2 as itself
				pod2 -> clusterIP => b1 as itself
			`,
		},
		{
			// If nothing is ready, hints do not count.
			service: service{name: "zone-terminating", slices: []slice{{endpoints: "a1:zone=east,terminating b1:zone=west,terminating"}}},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			service: service{name: "nodes", slices: []slice{{endpoints: "a1:node=node1,zone=west b1:node=node2,zone=east"}}},
			expect: `
				pod1 -> clusterIP => a1 as itself
				pod2 -> clusterIP => b1 as itself
			`,
		},
		{
			service: service{name: "nodes-elsewhere", slices: []slice{{endpoints: "a1:node=node3,zone=east b1:node=node3,zone=west"}}},
			expect: `
				pod1 -> clusterIP => a1 as itself
				pod2 -> clusterIP => b1 as itself
			`,
		},
		{
			service: service{name: "nodes-incomplete", slices: []slice{{endpoints: "a1:node=node1 b1"}}},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			// Traffic that stays on the node needs no hints; that of pods, which may go anywhere, follows them.
			service: service{
				name: "local", spec: "type: NodePort\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
				slices: []slice{{endpoints: "a1:zone=west b1:zone=east"}},
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
