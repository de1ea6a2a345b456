package packet

import (
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestAddresses shows that services are reachable at each kind of address
// from each origin.
func TestAddresses(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addPlace("spare", c.Node1, pair("198.18.0.1", "2001:db8:18::1"))
	labtest.Serve(t, 80, c.Client)
	proxied := service{name: "proxied", number: 2}
	c.addClient("proxy", proxied.addresses(proxyRanges()))
	c.runScenarios(t, []scenario{
		{
			service: service{
				name:      "everywhere",
				spec:      "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}",
				endpoints: "a1 b1",
			},
			expect: `
				pod1 pod2 node1 node2 -> clusterIP => a1 b1 as itself
				client -> clusterIP => a1 b1 as node1
				client pod1 node1 -> externalIP loadBalancerIP nodePort@node1 => a1 b1 as node1
				pod2 node2 -> externalIP loadBalancerIP nodePort@node2 => a1 b1 as node2
				client pod1 node1 -> nodePort@node2 => a1 b1 as node2
				pod2 node2 -> nodePort@node1 => a1 b1 as node1
				client pod1 pod2 node1 node2 -> nodePort@spare => refused  # no NodePort address
				node1 node2 -> nodePort@loopback => refused
			`,
		},
		{
			// The load balancer with ipMode Proxy is the client.
			service: service{name: "proxied", number: 2, spec: "type: LoadBalancer", endpoints: "a1 b1"},
			expect: `
				pod1 pod2 node1 node2 -> proxyIP => client as itself
				pod1 -> loadBalancerIP => a1 b1 as node1
			`,
		},
		{
			service: service{
				name: "ports", spec: "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}",
				ports:     []port{{"web", 80, firstTarget}, {"admin", 8443, secondTarget}, {"none", 81, 9}},
				endpoints: "a1",
			},
			expect: `
				client -> clusterIP:web clusterIP:admin externalIP:admin => a1 as node1
				client -> loadBalancerIP:admin nodePort@node1:admin => a1 as node1
				pod1 -> clusterIP:web clusterIP:admin => a1 as itself
				pod2 -> nodePort@node2:web nodePort@node2:admin => a1 as node2
				client pod1 node1 -> clusterIP:none => refused  # by the pod
				client pod1 pod2 node1 node2 -> clusterIP:82 => refused
			`,
		},
		{
			service: service{name: "single", endpoints: "b2"},
			expect: `
				client -> clusterIP => b2 as node1
				pod1 pod2 node1 node2 -> clusterIP => b2 as itself
				client pod1 pod2 node1 node2 -> clusterIP:9 => refused
			`,
		},
	})
}

// TestMasqueradeAll shows that --masquerade-all masquerades all connections
// to ClusterIPs.
func TestMasqueradeAll(t *testing.T) {
	t.Parallel()
	newCluster(t, "--masquerade-all").runScenarios(t, []scenario{{
		service: service{name: "all", spec: "type: NodePort\nexternalTrafficPolicy: Local", endpoints: "a1 b1"},
		expect: `
			pod1 client node1 -> clusterIP => a1 b1 as node1
			pod2 node2 -> clusterIP => a1 b1 as node2
			client -> nodePort@node1 => a1 as itself  # no ClusterIP
		`,
	}})
}

// TestHairpin shows that an endpoint reaches itself through a service. Such
// connections are masqueraded: a host drops packets from its own address.
func TestHairpin(t *testing.T) {
	t.Parallel()
	newCluster(t).runScenarios(t, []scenario{
		{
			service: service{
				name: "itself", spec: "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}",
				endpoints: "a1",
			},
			expect: `
				a1 -> clusterIP externalIP loadBalancerIP nodePort@node1 => a1 as node1
				a1 -> nodePort@node2 => a1 as node2
				a2 b1 -> clusterIP => a1 as itself
			`,
		},
		{
			service: service{name: "peers", endpoints: "a1 a2 b1"},
			expect: `
				a1 -> clusterIP => a1 as node1, a2 b1 as itself
				b1 -> clusterIP => b1 as node2, a1 a2 as itself
			`,
		},
		{
			service: service{
				name: "local", spec: "type: LoadBalancer\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
				endpoints: "a1 b1",
			},
			expect: `
				a1 -> clusterIP => a1 as node1
				a1 -> loadBalancerIP nodePort@node1 => a1 as node1, b1 as itself
				b1 -> clusterIP => b1 as node2
			`,
		},
		{
			// The EndpointSlice does not name the endpoint's node.
			service: service{name: "nowhere", endpoints: "b1:nowhere"},
			expect: `
				b1 -> clusterIP => b1 as node2
				a1 -> clusterIP => b1 as itself
			`,
		},
	})
}
