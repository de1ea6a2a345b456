package packet

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestNoEndpoints shows that connections to a service without endpoints are
// refused immediately.
func TestNoEndpoints(t *testing.T) {
	t.Parallel()
	const everywhere = `
		client pod1 pod2 node1 node2 -> clusterIP externalIP loadBalancerIP nodePort@node1 nodePort@node2 => refused
		client pod1 pod2 node1 node2 -> clusterIP:9 => refused
	`
	const spec = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}"
	newCluster(t).runScenarios(t, []scenario{
		{service: service{name: "none", spec: spec}, expect: everywhere},
		{service: service{name: "empty", spec: spec, slices: []slice{{endpoints: ""}}}, expect: everywhere},
		{
			service: service{name: "unusable", spec: spec, endpoints: "a1:unready b1:stopped"},
			expect:  everywhere,
		},
		{
			service: service{
				name: "local", spec: spec + "\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
				endpoints: "a1:unready b1:stopped",
			},
			expect: everywhere,
		},
		{
			service: service{name: "sticky", spec: spec + "\nsessionAffinity: ClientIP"},
			expect:  everywhere,
		},
	})
}

// TestEndpointIsClusterIP shows that an endpoint in a service CIDR, such as
// the ClusterIP of another Service, is not used: a packet is translated once.
func TestEndpointIsClusterIP(t *testing.T) {
	t.Parallel()
	const real = 3
	c := newCluster(t)
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	c.runScenarios(t, []scenario{
		{service: service{name: "real", number: real, endpoints: "a1"},
			expect: "pod1 node1 -> clusterIP => a1 as itself"},
		{
			service: service{name: "alias", slices: []slice{{vip: real}}},
			expect:  "client pod1 pod2 node1 node2 -> clusterIP => refused",
		},
		{
			service: service{name: "mixed", slices: []slice{{vip: real}, {endpoints: "a1"}}},
			expect:  "pod1 pod2 node1 node2 -> clusterIP => a1 as itself",
		},
	})
}

// TestSourceRanges shows which sources can use LoadBalancer IPs with
// loadBalancerSourceRanges.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addClient("stranger", pair("198.18.0.100", "fd00:18::100"))
	// If a load balancer does not translate packets, nodes have its
	// addresses. A node's packets to such an address have it as source.
	own, foreign := service{name: "own", number: 3}, service{name: "foreign", number: 4}
	for _, s := range []*service{&own, &foreign} {
		c.addPlace(s.name, c.Node1, s.addresses(loadBalancerRanges()))
	}
	own.spec = "type: LoadBalancer\nloadBalancerSourceRanges: {{.Ranges \"node1\"}}"
	own.slices = []slice{{endpoints: "a1"}}
	foreign.spec = "type: LoadBalancer\nloadBalancerSourceRanges: {{.Ranges \"client\" \"node2\"}}"
	foreign.slices = []slice{{endpoints: "a1"}}
	c.runScenarios(t, []scenario{
		{
			service: service{
				name: "guarded", spec: `
type: LoadBalancer
externalIPs: {{.ExternalIPs}}
loadBalancerSourceRanges: {{.Ranges "client" "a1" "node2"}}`,
				ports:     []port{{"web", 80, firstTarget}, {"admin", 8443, secondTarget}},
				endpoints: "a2 b2",
			},
			expect: `
				client -> loadBalancerIP loadBalancerIP:admin => a2 b2 as node1
				a1 -> loadBalancerIP => a2 b2 as node1
				node2 -> loadBalancerIP => a2 b2 as node2
				stranger pod1 pod2 node1 -> loadBalancerIP loadBalancerIP:admin => dropped
				stranger pod1 node1 -> externalIP nodePort@node1 => a2 b2 as node1
				stranger -> clusterIP => a2 b2 as node1
				pod1 node1 -> clusterIP => a2 b2 as itself
			`,
		},
		{
			service: service{
				name: "local", spec: `
type: LoadBalancer
externalTrafficPolicy: Local
loadBalancerSourceRanges: {{.Ranges "client" "a1"}}`,
				endpoints: "a2 b2",
			},
			expect: `
				client -> loadBalancerIP => a2 as itself
				a1 -> loadBalancerIP => a2 b2 as itself
				stranger pod1 pod2 node1 node2 -> loadBalancerIP => dropped
				stranger client -> nodePort@node1 => a2 as itself
			`,
		},
		{
			// Packets from other sources are dropped, not refused.
			service: service{
				name: "empty", spec: "type: LoadBalancer\nloadBalancerSourceRanges: {{.Ranges \"client\"}}",
			},
			expect: `
				client -> loadBalancerIP => refused
				stranger pod1 node1 -> loadBalancerIP => dropped
				stranger pod1 node1 -> nodePort@node1 clusterIP => refused
			`,
		},
		{
			service: service{
				name: "wide", spec: `
type: LoadBalancer
loadBalancerSourceRanges: [172.30.0.0/24, 172.30.0.0/16, "fd00:30::/64", "fd00:30::/32"]`,
				endpoints: "a2",
			},
			expect: `
				client node1 -> loadBalancerIP => a2 as node1
				stranger pod1 -> loadBalancerIP => dropped
			`,
		},
		{
			// Ranges of many lengths, also such that end within a byte.
			service: service{
				name: "lengths", spec: `
type: LoadBalancer
loadBalancerSourceRanges: [172.30.0.100/31, 198.18.0.0/26, 10.244.1.0/29, 128.0.0.0/3, 172.30.0.12/32, ` +
					`"fd00:30::100/127", "fd00:18::/121", "fd00:244:1::/125", "2000::/3", "fd00:30::12/128"]`,
				endpoints: "a2",
			},
			expect: `
				client a1 -> loadBalancerIP => a2 as node1
				node2 -> loadBalancerIP => a2 as node2
				stranger pod2 node1 -> loadBalancerIP => dropped
			`,
		},
		{
			// Ranges of the other family do not restrict this one.
			service: service{
				name: "other", families: "IPv6", spec: "type: LoadBalancer\nloadBalancerSourceRanges: [192.168.0.0/24]",
				endpoints: "a2",
			},
			expect: `client stranger pod1 node1 -> loadBalancerIP => a2 as node1`,
		},
		{
			service: own,
			expect: `
				node1 -> loadBalancerIP => a1 as node1
				client pod1 node2 -> loadBalancerIP => dropped
			`,
		},
		{
			service: foreign,
			expect: `
				node1 -> loadBalancerIP => dropped
				client -> loadBalancerIP => a1 as node1
			`,
		},
	})
}

// TestServiceCIDRs shows that packets to unallocated addresses of
// ServiceCIDRs are dropped and do not leave the cluster.
func TestServiceCIDRs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	labtest.Serve(t, 80, c.Client)
	// The client has unallocated addresses, and answers packets that are not
	// dropped.
	low, high := service{name: "low", number: 0x10}, service{name: "high", number: 0xff00}
	for _, s := range []*service{&low, &high} {
		s.setDefaults(c)
		c.addClient(s.name, s.addresses(lab.ServiceRanges()))
	}
	all := []scenario{
		{
			service: service{name: "web", endpoints: "a1"},
			expect:  `pod1 node1 -> clusterIP => a1 as itself`,
		},
		{service: low}, {service: high},
	}
	c.serve("web", &all[0].service)
	const passes = `pod1 pod2 node1 node2 -> clusterIP => client as itself`
	const dropped = `pod1 pod2 node1 node2 -> clusterIP => dropped`
	write := func(name, ipv4, ipv6 string) func() {
		return func() { c.write(name, serviceCIDR(name, ipv4, ipv6)) }
	}
	for _, step := range []struct {
		name      string
		change    func()
		low, high string
	}{
		{"no ServiceCIDR", func() {}, passes, passes},
		{"whole range", write("kubernetes", "10.96.0.0/16", "fd00:96::/112"), dropped, dropped},
		{"low half", write("kubernetes", "10.96.0.0/17", "fd00:96::/113"), dropped, passes},
		{"high half", write("kubernetes", "10.96.128.0/17", "fd00:96::8000/113"), passes, dropped},
		{"second one", write("second", "10.96.0.0/24", "fd00:96::/120"), dropped, dropped},
		{"first one removed", func() { c.remove("kubernetes") }, dropped, passes},
		{"all removed", func() { c.remove("second") }, passes, passes},
	} {
		if subject() != "" && step.name != "whole range" {
			continue // the API server has that range
		}
		step.change()
		c.settle()
		all[1].expect, all[2].expect = step.low, step.high
		t.Run(step.name, func(t *testing.T) { c.expect(t, all) })
	}
}

// TestLocalServiceAddresses shows that programs of a node can listen on
// addresses of a service CIDR, as NodeLocal DNSCache does, also where all
// ClusterIPs are addresses of the node, as after the IPVS mode of kube-proxy.
// They serve pods of the node and clients outside. Clients on the node itself,
// and packets that are forwarded, are refused.
func TestLocalServiceAddresses(t *testing.T) {
	t.Parallel()
	const unserved = 9300
	c := newIdleCluster(t)
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	web, free := service{name: "web", number: 2, spec: "type: NodePort", endpoints: "a1"}, service{name: "free",
		number: 3}
	none := service{name: "none", number: 4}
	for _, s := range []*service{&web, &free, &none} {
		c.addPlace(s.name, c.Node1, s.addresses(lab.ServiceRanges()))
		s.setDefaults(c)
	}
	free.ports = []port{{number: unserved}}
	labtest.Serve(t, unserved, c.Node1.Namespace)
	for _, flags := range [][]string{nil, {"--nodeport-addresses", "all"}} {
		c.restart(append(defaultFlags(), flags...)...)
		c.serve("web", &web, &none)
		expect := `
			pod1 node1 pod2 node2 -> clusterIP => a1 as itself
			client -> clusterIP => a1 as node1
			client pod1 -> clusterIP:9300 => node1 as itself
			pod1 -> clusterIP:9 => refused  # by node1
			node1 pod2 node2 -> clusterIP:9300 => refused
		`
		if flags != nil {
			expect += "client pod1 node1 -> nodePort@web => a1 as node1"
		}
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			c.expect(t, []scenario{
				{service: web, expect: expect},
				{service: free, expect: `
					client pod1 -> clusterIP => node1 as itself
					node1 pod2 node2 -> clusterIP => dropped
				`},
				{service: none, expect: "client pod1 node1 pod2 node2 -> clusterIP => refused"},
			})
		})
	}
}

func serviceCIDR(name, ipv4, ipv6 string) string {
	return `---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata:
  name: ` + name + `
spec:
  cidrs: ["` + ipv4 + `", "` + ipv6 + `"]
`
}
