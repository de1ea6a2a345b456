package packet

import (
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestSCTP shows that SCTP is served like other protocols.
func TestSCTP(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	const spec = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}"
	onA1, onB1 := []slice{{endpoints: "a1"}}, []slice{{endpoints: "b1"}}
	all := []scenario{
		{
			service: service{name: "served", spec: spec, slices: onA1},
			expect: `
				pod1 pod2 node1 -> clusterIP => a1 as itself
				client -> clusterIP externalIP loadBalancerIP nodePort@node1 => a1 as node1
				pod2 -> externalIP nodePort@node2 => a1 as node2
				a1 -> clusterIP => a1 as node1
			`,
		},
		{
			service: service{name: "several", spec: spec, endpoints: "a1 a2 b1"},
			expect:  `pod1 -> clusterIP => a1 a2 b1 as itself`,
		},
		{
			service: service{name: "local", spec: spec + "\nexternalTrafficPolicy: Local", slices: onA1},
			expect:  `client pod1 -> externalIP nodePort@node1 => a1 as itself`,
		},
		{
			service: service{name: "sticky", spec: spec + "\nsessionAffinity: ClientIP", slices: onA1},
			expect: `
				pod1 -> clusterIP => a1 as itself
				client -> externalIP nodePort@node1 => a1 as node1
			`,
		},
		{
			service: service{name: "none", spec: spec},
			expect:  `client pod1 node1 -> clusterIP externalIP loadBalancerIP nodePort@node1 => refused`,
		},
		{
			service: service{
				name: "guarded", spec: "type: LoadBalancer\nloadBalancerSourceRanges: {{.Ranges \"pod1\"}}",
				slices: onA1,
			},
			expect: `
				pod1 -> loadBalancerIP => a1 as node1
				client node1 -> loadBalancerIP => dropped
			`,
		},
		{
			service: service{
				name: "far", spec: spec + "\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local", slices: onB1,
			},
			expect: `
				client pod1 node1 -> clusterIP => dropped
				client -> externalIP nodePort@node1 => dropped
			`,
		},
	}
	for i := range all {
		all[i].protocols = "SCTP"
	}
	c.runScenarios(t, all)

	// The port of another protocol is not an SCTP port.
	tcp := service{name: "tcp", protocols: "TCP", slices: onB1}
	c.serve("tcp", &tcp)
	tcp.protocols = "SCTP"
	c.checks(&tcp, "client pod1 node1 -> clusterIP => refused").run(t)

	unallocated := service{name: "unallocated", protocols: "SCTP", number: 3}
	unallocated.setDefaults(c)
	// The client has the address and answers a packet that is not dropped.
	labtest.Serve(t, 80, c.Client)
	c.addClient("unallocated", unallocated.addresses(lab.ServiceRanges()))
	c.checks(&unallocated, "pod1 node1 -> clusterIP => dropped").run(t)
}
