package packet

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestServiceTypeChanges makes a service of each type out of every other, and shows that nothing of what it was before is
// left.
func TestServiceTypeChanges(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.settle()
	before := []string{tables(t, c.Node1.Namespace), tables(t, c.Node2.Namespace)}
	const (
		clusterIP     = "type: ClusterIP"
		internalLocal = "type: ClusterIP\ninternalTrafficPolicy: Local"
		external      = "type: ClusterIP\nexternalIPs: {{.ExternalIPs}}"
		nodePort      = "type: NodePort"
		nodePortLocal = "type: NodePort\nexternalTrafficPolicy: Local"
		loadBalancer  = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}\nloadBalancerSourceRanges: {{.Ranges \"client\" \"pod1\"}}"
		externalName  = "type: ExternalName\nexternalName: example.org"
		headless      = "clusterIP: None"
	)
	s := service{name: "web", slices: []slice{{endpoints: "a1 b1"}}}
	steps := []struct{ name, spec, expect string }{
		{"ClusterIP", clusterIP, `
			pod1 -> clusterIP => a1 b1 as itself
			pod1 -> nodePort@node1 => refused`},
		{"NodePort", nodePort, `
			pod1 -> clusterIP => a1 b1 as itself
			client -> nodePort@node1 => a1 b1 as node1`},
		{"LoadBalancer", loadBalancer, `
			pod1 -> clusterIP => a1 b1 as itself
			client pod1 -> nodePort@node1 loadBalancerIP externalIP => a1 b1 as node1`},
		{"ExternalName", externalName, `
			pod1 -> clusterIP loadBalancerIP externalIP => dropped
			client pod1 -> nodePort@node1 => refused`},
		{"ClusterIP again", clusterIP, `
			pod1 -> clusterIP => a1 b1 as itself
			pod1 -> loadBalancerIP externalIP => dropped
			client pod1 -> nodePort@node1 => refused`},
		{"headless", headless, `
			pod1 -> clusterIP => dropped
			client pod1 -> nodePort@node1 => refused`},
		{"external IPs", external, `
			client -> externalIP => a1 b1 as node1
			client pod1 -> nodePort@node1 => refused`},
		{"LoadBalancer again", loadBalancer, `client pod1 -> loadBalancerIP => a1 b1 as node1`},
		{"NodePort, Local", nodePortLocal, `
			client -> nodePort@node1 => a1 as itself
			pod1 -> loadBalancerIP externalIP => dropped`},
		{"internal, Local", internalLocal, `
			pod1 -> clusterIP => a1 as itself
			client pod1 -> nodePort@node1 => refused`},
		{"ExternalName again", externalName, `pod1 -> clusterIP => dropped`},
		{"NodePort again", nodePort, `client -> nodePort@node1 => a1 b1 as node1`},
	}
	seen := make(map[string]string)
	for _, step := range steps {
		s.spec = step.spec
		c.serve("web", &s)
		c.checks(&s, step.expect).run(t)
		now := tables(t, c.Node1.Namespace)
		if last, again := seen[step.spec]; again {
			if d := differences(last, now); d != "" {
				t.Errorf("%s: the tables differ from those of the last time:\n%s", step.name, d)
			}
		}
		seen[step.spec] = now
	}
	c.expectFresh(t, "after all changes")
	c.remove("web")
	c.settle()
	c.checks(&s, "pod1 -> clusterIP => dropped\n client pod1 -> nodePort@node1 => refused").run(t)
	for i, p := range c.proxies {
		if d := differences(before[i], tables(t, p.at)); d != "" {
			t.Errorf("the deleted service left in the tables of %s:\n%s", p.node, d)
		}
	}
}

// TestKindsOfServices shows which services count and which do not, and of which families they are.
func TestKindsOfServices(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	labtest.Serve(t, 80, c.Client)
	// hold gives the client the addresses of a service that is to be left alone: packets to them go there.
	hold := func(number int) int {
		s := service{name: "held", number: number}
		for f := range bothFamilies() {
			for _, ranges := range [][]netip.Prefix{lab.ServiceRanges(), lab.ExternalRanges()} {
				if err := c.Client.AddAddr(single(s.address(ranges, family(f)))); err != nil {
					t.Fatal(err)
				}
			}
		}
		return number
	}
	const spec = "type: NodePort\nexternalIPs: {{.ExternalIPs}}"
	endpoints := []slice{{endpoints: "a1"}}
	const alone = `
		pod1 node1 -> clusterIP externalIP => client as itself
		client pod1 node1 -> nodePort@node1 => refused
	`
	c.runScenarios(t, []scenario{
		{
			service: service{name: "dual-stack", spec: spec + "\nipFamilyPolicy: RequireDualStack", slices: endpoints},
			expect:  `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{name: "ipv4", spec: spec, families: "IPv4", slices: endpoints},
			expect:  `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{name: "ipv6", spec: spec, families: "IPv6", slices: endpoints},
			expect:  `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{name: "labelled", metadata: "labels: {team: web}", spec: spec, slices: endpoints},
			expect:  `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{
				name: "other-proxy", metadata: "labels: {service.kubernetes.io/service-proxy-name: mesh}",
				spec: spec, slices: endpoints, number: hold(2),
			},
			expect: alone,
		},
		{ // the label counts on EndpointSlices only
			service: service{name: "headless-label", metadata: "labels: {service.kubernetes.io/headless: \"\"}", spec: spec, slices: endpoints},
			expect:  `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{name: "headless", spec: "clusterIP: None\nexternalIPs: {{.ExternalIPs}}", slices: endpoints, number: hold(4)},
			expect:  alone,
		},
		{
			service: service{
				name: "external-name", spec: "type: ExternalName\nexternalName: example.org\nexternalIPs: {{.ExternalIPs}}",
				slices: endpoints, number: hold(5),
			},
			expect: alone,
		},
	})
	// Of a single-stack service, there is nothing in the other family.
	for i, s := range []service{{name: "ipv4", number: serviceNumbers + 2}, {name: "ipv6", number: serviceNumbers + 3}} {
		s.allot(c)
		other := ipv6
		if i == 1 {
			other = ipv4
		}
		s.families = other.String()
		t.Run(s.name, func(t *testing.T) {
			c.checks(&s, `
				client pod1 node1 -> nodePort@node1 => refused
				pod1 -> clusterIP externalIP => dropped
			`).run(t)
		})
	}
}
