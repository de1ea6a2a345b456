package packet

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestBridgeNetfilter shows that pods behind a bridge are served when its
// frames pass the packet filter, as Kubernetes requires
// (net.bridge.bridge-nf-call-iptables). The kernel then calls the chains of
// the hook prerouting from the bridge, with packets that it may forward as
// frames: refusals and DNAT must work there too. It needs a kernel with
// br_netfilter.
func TestBridgeNetfilter(t *testing.T) {
	t.Parallel()
	c := newIdleCluster(t, defaultFlags()...)
	c.addBridgedPods("near1", "near2", "near3")
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	c.start()

	// By default, answers between pods of one bridge bypass the node's packet
	// filter, and clients do not recognize them.
	c.runScenarios(t, []scenario{{
		service: service{name: "bypassed", endpoints: "near2"},
		expect:  `near1 -> clusterIP => lost`,
	}})
	c.filterBridgedFrames()
	c.runScenarios(t, bridgeScenarios())

	// The client has the address, and refuses a packet that is not dropped.
	unallocated := service{name: "unallocated", number: 3}
	unallocated.setDefaults(c)
	c.addClient("unallocated", unallocated.addresses(lab.ServiceRanges()))
	c.checks(&unallocated, "near1 near3 -> clusterIP => dropped").run(t)
}

// addBridgedPods adds pods of node1 behind one bridge. All but the last one
// send frames to each other directly.
func (c *cluster) addBridgedPods(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.addPod(c.Node1, lab.PodConfig{Name: name, Bridge: "cbr0"})
	}
	for _, from := range names[:len(names)-1] {
		for _, to := range names[:len(names)-1] {
			if from == to {
				continue
			}
			for _, addr := range c.pods[to].Addrs() {
				if err := c.pods[from].ReplaceLinkRoute(single(addr)); err != nil {
					c.t.Fatal(err)
				}
			}
		}
	}
}

// filterBridgedFrames makes frames inside node1's bridges pass the packet
// filter.
func (c *cluster) filterBridgedFrames() {
	c.t.Helper()
	for _, name := range []string{"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"} {
		if err := c.Node1.SetSysctl(name, "1"); err != nil {
			c.t.Fatal(fmt.Errorf("sysctl of br_netfilter: %w", err))
		}
	}
}

func bridgeScenarios() []scenario {
	const spec = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}"
	return []scenario{
		{
			service: service{name: "none", spec: spec},
			expect: `
				near1 near3 -> clusterIP externalIP loadBalancerIP nodePort@node1 nodePort@node2 => refused
				client pod1 node1 -> clusterIP nodePort@node1 => refused
			`,
		},
		{
			service: service{name: "bridge", spec: spec, endpoints: "near2"},
			expect: `
				near1 near3 pod1 pod2 node1 -> clusterIP => near2 as itself
				client -> clusterIP externalIP nodePort@node1 => near2 as node1
				near1 near3 pod1 -> externalIP loadBalancerIP nodePort@node1 => near2 as node1
				near1 -> nodePort@node2 => near2 as node2
				near1 near3 -> clusterIP:9 => refused
			`,
		},
		{
			service: service{name: "elsewhere", spec: spec, endpoints: "a1 b1"},
			expect: `
				near1 near3 -> clusterIP => a1 b1 as itself
				near1 -> externalIP nodePort@node1 => a1 b1 as node1
				near1 near3 -> clusterIP:9 => refused
			`,
		},
		{
			service: service{name: "mixed", spec: spec, endpoints: "near2 a1 b1"},
			expect:  `near1 near3 -> clusterIP => near2 a1 b1 as itself`,
		},
		{
			service: service{name: "sticky", spec: spec + "\nsessionAffinity: ClientIP", endpoints: "near2"},
			expect: `
				near1 near3 -> clusterIP => near2 as itself
				near1 -> nodePort@node1 => near2 as node1
			`,
		},
		{
			service: service{
				name: "local", spec: spec + "\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
				endpoints: "near2 b1",
			},
			expect: `
				near1 near3 -> clusterIP => near2 as itself
				near1 near3 -> loadBalancerIP nodePort@node1 => near2 b1 as itself
				client -> loadBalancerIP nodePort@node1 => near2 as itself
			`,
		},
		{
			service: service{
				name: "local-far", spec: spec + "\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
				endpoints: "b1",
			},
			expect: `
				near1 near3 -> clusterIP => dropped
				near1 -> loadBalancerIP nodePort@node1 => b1 as itself
				client -> loadBalancerIP nodePort@node1 => dropped
			`,
		},
		{
			service: service{
				name: "guarded", spec: "type: LoadBalancer\nloadBalancerSourceRanges: {{.Ranges \"near1\"}}",
				endpoints: "near2",
			},
			expect: `
				near1 -> loadBalancerIP => near2 as node1
				near3 -> loadBalancerIP => dropped
			`,
		},
	}
}
