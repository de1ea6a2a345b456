package packet

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestServiceTypeChanges shows that a change of a service's type leaves no
// rows of the earlier type.
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
		loadBalancer  = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}\n" +
			"loadBalancerSourceRanges: {{.Ranges \"client\" \"pod1\"}}"
		externalName = "type: ExternalName\nexternalName: example.org"
		headless     = "clusterIP: None"
	)
	s := service{name: "web", endpoints: "a1 b1"}
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
		t.Run(step.name, func(t *testing.T) { c.checks(&s, step.expect).run(t) })
		now := tables(t, c.Node1.Namespace)
		if last, again := seen[step.spec]; again {
			if d := differences(last, now); d != "" {
				t.Errorf("%s: tables differ from the earlier ones of this type:\n%s", step.name, d)
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
			t.Errorf("tables of %s after the deletion:\n%s", p.node, d)
		}
	}
}

// TestKindsOfServices shows which kinds of Services are served, and in which
// families.
func TestKindsOfServices(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	labtest.Serve(t, 80, c.Client)
	// hold adds the addresses of a service that is not served to the client,
	// which gets the packets to them.
	hold := func(number int) int {
		s := service{name: "held", number: number}
		for i, ranges := range [][]netip.Prefix{lab.ServiceRanges(), lab.ExternalRanges()} {
			c.addClient(fmt.Sprintf("held-%d-%d", number, i), s.addresses(ranges))
		}
		return number
	}
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	const spec = "type: NodePort\nexternalIPs: {{.ExternalIPs}}"
	const notServed = `
		pod1 node1 -> clusterIP => dropped
		pod1 node1 -> externalIP => client as itself
		client pod1 node1 -> nodePort@node1 => refused
	`
	c.runScenarios(t, []scenario{
		{
			service: service{name: "dual-stack", spec: spec, endpoints: "a1"},
			expect:  `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{name: "ipv4", spec: spec, families: "IPv4", endpoints: "a1"},
			expect:  `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{name: "ipv6", spec: spec, families: "IPv6", endpoints: "a1"},
			expect:  `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{name: "labelled", metadata: "labels: {team: web}", spec: spec, endpoints: "a1"},
			expect:  `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{
				name: "other-proxy", metadata: "labels: {service.kubernetes.io/service-proxy-name: mesh}",
				spec: spec, endpoints: "a1", number: hold(2),
			},
			expect: notServed,
		},
		{ // the label has an effect on EndpointSlices only
			service: service{
				name: "headless-label", metadata: "labels: {service.kubernetes.io/headless: \"\"}", spec: spec,
				endpoints: "a1",
			},
			expect: `client -> clusterIP externalIP nodePort@node1 => a1 as node1`,
		},
		{
			service: service{
				name: "headless", spec: "clusterIP: None\nexternalIPs: {{.ExternalIPs}}", endpoints: "a1",
				number: hold(4),
			},
			expect: notServed,
		},
		{
			service: service{
				name:      "external-name",
				spec:      "type: ExternalName\nexternalName: example.org\nexternalIPs: {{.ExternalIPs}}",
				endpoints: "a1", number: hold(5),
			},
			expect: notServed,
		},
	})
	// A single-stack service has no addresses in the other family.
	for _, s := range []service{
		{name: "ipv4", number: serviceNumbers + 2, families: "IPv6"},
		{name: "ipv6", number: serviceNumbers + 3, families: "IPv4"},
	} {
		s.setDefaults(c)
		t.Run(s.name, func(t *testing.T) {
			c.checks(&s, `
				client pod1 node1 -> nodePort@node1 => refused
				pod1 -> clusterIP externalIP => dropped
			`).run(t)
		})
	}
}
