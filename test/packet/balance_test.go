package packet

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

const (
	sourceHash     = `annotations: {nftproxy.io/balance: source-hash}`
	sourcePortHash = `annotations: {nftproxy.io/balance: source-port-hash}`
)

// TestSourceHash shows that a client has the endpoint that is predicted, at all
// addresses of the Service and on both nodes, also after a restart and after a
// repair.
func TestSourceHash(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clients := c.addClients(affinityClients)
	s := service{
		name: "hashed", metadata: sourceHash, spec: "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}",
		endpoints: "a1 a2 b1 b2",
	}
	c.serve("hashed", &s)
	origins := clients + " pod1 a1"
	first := c.choose(t, &s, origins, "clusterIP")
	if servers := strings.Fields(first.servers()); len(servers) < 2 {
		t.Errorf("got %s for all clients, want several endpoints", servers)
	}
	for _, to := range []string{"clusterIP", "externalIP", "loadBalancerIP", "nodePort@node1"} {
		first.mustStay(t, to, c.choose(t, &s, origins, to))
		first.mustStay(t, to+", as predicted", c.predict(t, &s, origins, to))
	}
	outside := c.choose(t, &s, clients, "nodePort@node1")
	outside.mustStay(t, "another node", c.choose(t, &s, clients, "nodePort@node2"))

	for _, p := range c.proxies {
		p.kill(t)
	}
	c.start()
	first.mustStay(t, "restarted", c.choose(t, &s, origins, "clusterIP"))
	for _, family := range []string{"ip", "ip6"} {
		labtest.Run(t, c.Node1.Namespace, "nft", "flush", "map", family, "kube-proxy", "service-targets")
	}
	c.expectFresh(t, "after a repair")
	first.mustStay(t, "repaired", c.choose(t, &s, origins, "clusterIP"))

	s.slices = []slice{{endpoints: "b2"}, {endpoints: "a2 b1", weight: "1"}}
	c.serve("hashed", &s)
	now := c.choose(t, &s, origins, "clusterIP")
	now.mustStay(t, "endpoint removed, as predicted", c.predict(t, &s, origins, "clusterIP"))
	for who, server := range now {
		if server == "a1" {
			t.Errorf("%s uses the endpoint that was removed", who)
		}
	}
	if moved := first.moved(now); len(moved) > len(first)/2 {
		t.Errorf("one of four endpoints is removed: %d of %d clients moved: %s", len(moved), len(first), moved)
	}

	s.spec += "\nexternalTrafficPolicy: Local"
	c.serve("hashed", &s)
	for _, to := range []string{"nodePort@node2", "nodePort@node1"} {
		chosen := c.choose(t, &s, clients, to)
		chosen.mustStay(t, to+", policy Local", c.predict(t, &s, clients, to))
	}
}

// TestBalance shows which endpoints connections reach with hashes of ports,
// session affinity and weights.
func TestBalance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const external, local = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}", "\nexternalTrafficPolicy: Local"
	c.runScenarios(t, []scenario{
		{
			service: service{name: "port-hash", metadata: sourcePortHash, spec: external, endpoints: "a1 b1"},
			expect: `
				pod1 pod2 node1 -> clusterIP => a1 b1 as itself
				client -> externalIP loadBalancerIP nodePort@node1 => a1 b1 as node1
				a1 -> clusterIP => b1 as itself, a1 as node1
			`,
		},
		{
			service: service{
				name: "port-hash-local", metadata: sourcePortHash, spec: external + local, endpoints: "a1 a2 b1",
			},
			expect: `
				client -> externalIP loadBalancerIP nodePort@node1 => a1 a2 as itself
				client -> nodePort@node2 => b1 as itself
				pod1 -> externalIP nodePort@node1 => a1 a2 b1 as itself
				node1 -> externalIP nodePort@node1 => a1 a2 b1 as node1
			`,
		},
		{
			service: service{
				name: "weighted", spec: external,
				slices: []slice{{endpoints: "a1", weight: "3"}, {endpoints: "b1"}, {endpoints: "a2", weight: "0"}},
			},
			expect: `
				pod1 node1 -> clusterIP => a1 b1 as itself
				client -> externalIP loadBalancerIP nodePort@node1 => a1 b1 as node1
			`,
		},
		{
			service: service{
				name: "weighted-local", spec: external + local,
				slices: []slice{{endpoints: "a1", weight: "0"}, {endpoints: "b1 b2", weight: "2"}},
			},
			expect: `
				client -> externalIP loadBalancerIP nodePort@node1 => refused
				client -> nodePort@node2 => b1 b2 as itself
				pod1 -> clusterIP externalIP => b1 b2 as itself
			`,
		},
		{
			service: service{
				name: "weightless", metadata: sourceHash, spec: external,
				slices: []slice{{endpoints: "a1 b1", weight: "0"}},
			},
			expect: `
				pod1 node1 client -> clusterIP externalIP nodePort@node1 => refused
			`,
		},
		{
			service: service{
				name: "sticky", metadata: sourceHash, spec: external + "\nsessionAffinity: ClientIP",
				slices: []slice{{endpoints: "a1", weight: "0"}},
			},
			expect: `pod1 -> clusterIP => a1 as itself`,
		},
	})
}
