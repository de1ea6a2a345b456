package packet

import (
	"testing"
)

// TestTrafficPolicyLocal shows externalTrafficPolicy and
// internalTrafficPolicy Local: the endpoints, the source address that they
// see, and the outcome without an endpoint on the node.
func TestTrafficPolicyLocal(t *testing.T) {
	t.Parallel()
	const external = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}\nexternalTrafficPolicy: Local"
	const internal = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}\ninternalTrafficPolicy: Local"
	c := newCluster(t)
	// Masquerading replaces this source address with the primary one.
	c.addPlace("spare", c.Node1, pair("198.18.0.1", "2001:db8:18::1"))
	c.runScenarios(t, []scenario{
		{
			service: service{name: "external", spec: external, endpoints: "a1 b1"},
			expect: `
				client -> externalIP loadBalancerIP nodePort@node1 => a1 as itself
				client -> nodePort@node2 => b1 as itself
				node2 -> nodePort@node1 => a1 as itself
				node1 -> nodePort@node2 => b1 as itself
				pod1 -> externalIP loadBalancerIP nodePort@node1 => a1 b1 as itself
				pod2 -> externalIP loadBalancerIP nodePort@node2 => a1 b1 as itself
				node1 spare -> externalIP loadBalancerIP nodePort@node1 => a1 b1 as node1
				node2 -> externalIP loadBalancerIP nodePort@node2 => a1 b1 as node2
				client -> clusterIP => a1 b1 as node1
				pod1 pod2 node1 node2 -> clusterIP => a1 b1 as itself
			`,
		},
		{
			service: service{name: "external-far", spec: external, endpoints: "b1 b2"},
			expect: `
				client -> externalIP loadBalancerIP nodePort@node1 => dropped
				node2 -> nodePort@node1 => dropped
				client -> nodePort@node2 => b1 b2 as itself
				pod1 -> externalIP loadBalancerIP nodePort@node1 => b1 b2 as itself
				pod2 -> externalIP loadBalancerIP nodePort@node2 => b1 b2 as itself
				node1 spare -> externalIP loadBalancerIP nodePort@node1 => b1 b2 as node1
				pod1 node1 pod2 node2 -> clusterIP => b1 b2 as itself
			`,
		},
		{
			service: service{name: "external-none", spec: external, endpoints: "b1:unready"},
			expect: `
				client pod1 pod2 node1 node2 -> externalIP loadBalancerIP clusterIP => refused
			client pod1 pod2 node1 node2 -> nodePort@node1 nodePort@node2 => refused
			`,
		},
		{
			service: service{name: "internal", spec: internal, endpoints: "a1 a2 b1"},
			expect: `
				pod1 node1 -> clusterIP => a1 a2 as itself
				pod2 node2 -> clusterIP => b1 as itself
				client -> clusterIP => a1 a2 as node1
				client pod1 node1 spare -> externalIP loadBalancerIP nodePort@node1 => a1 a2 b1 as node1
				pod2 node2 -> externalIP loadBalancerIP nodePort@node2 => a1 a2 b1 as node2
			`,
		},
		{
			service: service{name: "internal-far", spec: internal, endpoints: "b1"},
			expect: `
				pod1 node1 client -> clusterIP => dropped
				pod2 node2 -> clusterIP => b1 as itself
				client pod1 node1 -> externalIP loadBalancerIP nodePort@node1 => b1 as node1
			`,
		},
		{
			service: service{name: "internal-none", spec: internal},
			expect:  `client pod1 pod2 node1 node2 -> clusterIP externalIP nodePort@node1 => refused`,
		},
		{
			service: service{name: "both", spec: external + "\ninternalTrafficPolicy: Local", endpoints: "a1 b1"},
			expect: `
				pod1 node1 -> clusterIP => a1 as itself
				pod2 node2 -> clusterIP => b1 as itself
				client -> externalIP nodePort@node1 => a1 as itself
				pod1 -> externalIP nodePort@node1 => a1 b1 as itself
				node1 -> externalIP nodePort@node1 => a1 b1 as node1
			`,
		},
		{
			service: service{name: "both-far", spec: external + "\ninternalTrafficPolicy: Local", endpoints: "b1"},
			expect: `
				pod1 node1 client -> clusterIP => dropped
				client -> externalIP nodePort@node1 => dropped
				pod1 -> externalIP loadBalancerIP nodePort@node1 => b1 as itself
				node1 -> externalIP loadBalancerIP nodePort@node1 => b1 as node1
			`,
		},
		{
			// Ports are independent.
			service: service{
				name: "nodeport", spec: "type: NodePort\nexternalTrafficPolicy: Local",
				ports:     []port{{"web", 80, firstTarget}, {"admin", 8443, secondTarget}},
				endpoints: "a1 b2",
			},
			expect: `
				client -> nodePort@node1:web nodePort@node1:admin => a1 as itself
				client -> nodePort@node2:web nodePort@node2:admin => b2 as itself
				pod1 -> nodePort@node1:admin => a1 b2 as itself
			`,
		},
	})
}
