package packet

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestBridgeNetfilter serves pods behind a bridge whose frames pass the packet
// filter, as Kubernetes asks for with net.bridge.bridge-nf-call-iptables. The
// kernel then calls the chains of the hook prerouting from the bridge, with
// packets that it may forward as frames: refusals and DNAT must work there too. It
// needs a kernel with br_netfilter.
func TestBridgeNetfilter(t *testing.T) {
	t.Parallel()
	c := newIdleCluster(t, defaultFlags()...)
	c.addBridgedPods("near1", "near2", "near3")
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	c.start()

	// Without the packet filter, answers between pods of one bridge bypass the
	// node, and clients do not recognize them.
	c.filterBridgedFrames(false)
	c.runScenarios(t, []scenario{{
		service: service{name: "bypassed", slices: []slice{{endpoints: "near2"}}},
		expect:  `near1 -> clusterIP => dropped`,
	}})
	c.filterBridgedFrames(true)
	c.runScenarios(t, bridgeScenarios())

	// The client has the address, and refuses what is not dropped.
	unallocated := service{name: "unallocated", number: 3}
	unallocated.allot(c)
	c.addClient("unallocated", [2]netip.Addr{
		unallocated.address(lab.ServiceRanges(), ipv4), unallocated.address(lab.ServiceRanges(), ipv6),
	})
	c.checks(&unallocated, "near1 near3 -> clusterIP => dropped").run(t)
}

// addBridgedPods adds pods of node1 behind one bridge. Except for the last one,
// they send frames to each other, not to the node.
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

// filterBridgedFrames sets whether frames inside node1's bridge pass the packet
// filter.
func (c *cluster) filterBridgedFrames(filter bool) {
	c.t.Helper()
	if err := c.Node1.FilterBridgedFrames(filter); err != nil {
		c.t.Fatal(fmt.Errorf("does this kernel have br_netfilter? %w", err))
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
			service: service{name: "bridge", spec: spec, slices: []slice{{endpoints: "near2"}}},
			expect: `
				near1 near3 pod1 pod2 node1 -> clusterIP => near2 as itself
				client -> clusterIP externalIP nodePort@node1 => near2 as node1
				near1 near3 pod1 -> externalIP loadBalancerIP nodePort@node1 => near2 as node1
				near1 -> nodePort@node2 => near2 as node2
				near1 near3 -> clusterIP:9 => refused
			`,
		},
		{
			service: service{name: "elsewhere", spec: spec, slices: []slice{{endpoints: "a1 b1"}}},
			expect: `
				near1 near3 -> clusterIP => a1 b1 as itself
				near1 -> externalIP nodePort@node1 => a1 b1 as node1
				near1 near3 -> clusterIP:9 => refused
			`,
		},
		{
			service: service{name: "mixed", spec: spec, slices: []slice{{endpoints: "near2 a1 b1"}}},
			expect:  `near1 near3 -> clusterIP => near2 a1 b1 as itself`,
		},
		{
			service: service{
				name: "sticky", spec: spec + "\nsessionAffinity: ClientIP",
				slices: []slice{{endpoints: "near2"}},
			},
			expect: `
				near1 near3 -> clusterIP => near2 as itself
				near1 -> nodePort@node1 => near2 as node1
			`,
		},
		{
			service: service{
				name: "local", spec: spec + "\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
				slices: []slice{{endpoints: "near2 b1"}},
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
				slices: []slice{{endpoints: "b1"}},
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
				slices: []slice{{endpoints: "near2"}},
			},
			expect: `
				near1 -> loadBalancerIP => near2 as node1
				near3 -> loadBalancerIP => dropped
			`,
		},
	}
}
