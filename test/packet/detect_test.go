package packet

import (
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestDetectLocalModes shows which traffic each mode considers local: it
// keeps its source address on the way to ClusterIPs, and can use all
// endpoints on the way to external addresses with externalTrafficPolicy
// Local.
func TestDetectLocalModes(t *testing.T) {
	t.Parallel()
	c := newIdleCluster(t)
	c.addPod(c.Node1, lab.PodConfig{Name: "bridged", Bridge: "cbr0"})
	c.addPod(c.Node1, lab.PodConfig{Name: "named", HostInterface: "cali123"})
	all := func() []scenario {
		return []scenario{
			{service: service{name: "internal", spec: "type: NodePort", endpoints: "a1 b1", number: 2}},
			{service: service{
				name: "external", spec: "type: NodePort\nexternalTrafficPolicy: Local",
				endpoints: "a1 b1", number: 3,
			}},
			// The endpoint answers through the node of the NodePort.
			{service: service{
				name: "far", spec: "type: NodePort\nexternalTrafficPolicy: Local",
				endpoints: "a1", number: 4,
			}},
		}
	}
	// Expected in all modes.
	const internal = `
		client pod1 -> nodePort@node1 => a1 b1 as node1
		node1 node2 -> clusterIP => a1 b1 as itself
	`
	const external = `
		client -> nodePort@node1 => a1 as itself
		node1 -> nodePort@node1 => a1 b1 as node1
	`
	tests := []struct {
		name                    string
		flags                   []string
		internal, external, far string
	}{
		{
			name:  "ClusterCIDR",
			flags: defaultFlags(),
			internal: `
				client -> clusterIP => a1 b1 as node1
				pod1 bridged named pod2 -> clusterIP => a1 b1 as itself
			`,
			external: `pod1 bridged named -> nodePort@node1 => a1 b1 as itself`,
			far: `
				pod1 -> nodePort@node1 => a1 as itself
				client -> nodePort@node2 => dropped
			`,
		},
		{
			// Pods of other nodes are not local.
			name:  "NodeCIDR",
			flags: []string{"--detect-local-mode", "NodeCIDR"},
			internal: `
				client -> clusterIP => a1 b1 as node1
				pod1 bridged named pod2 -> clusterIP => a1 b1 as itself
			`,
			external: `
				pod1 bridged named -> nodePort@node1 => a1 b1 as itself
				pod2 -> nodePort@node1 => a1 as itself
			`,
			far: `
				pod1 client -> nodePort@node2 => dropped
				pod2 -> nodePort@node2 => a1 as itself
			`,
		},
		{
			name:  "BridgeInterface",
			flags: []string{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cbr0"},
			internal: `
				bridged -> clusterIP => a1 b1 as itself
				client pod1 named -> clusterIP => a1 b1 as node1
				pod2 -> clusterIP => a1 b1 as node2
			`,
			external: `
				bridged -> nodePort@node1 => a1 b1 as itself
				pod1 named pod2 -> nodePort@node1 => a1 as itself
			`,
			far: `pod1 pod2 client -> nodePort@node2 => dropped`,
		},
		{
			name:  "InterfaceNamePrefix",
			flags: []string{"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "cali"},
			internal: `
				named -> clusterIP => a1 b1 as itself
				client pod1 bridged -> clusterIP => a1 b1 as node1
				pod2 -> clusterIP => a1 b1 as node2
			`,
			external: `
				named -> nodePort@node1 => a1 b1 as itself
				pod1 bridged pod2 -> nodePort@node1 => a1 as itself
			`,
			far: `pod1 pod2 client -> nodePort@node2 => dropped`,
		},
		{
			name:     "ClusterCIDR without a CIDR",
			internal: `pod1 bridged named pod2 -> clusterIP => a1 b1 as itself`,
			external: `pod1 bridged named pod2 -> nodePort@node1 => a1 as itself`,
			far: `
				client -> clusterIP => a1 as itself
				pod1 pod2 client -> nodePort@node2 => dropped
			`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c.restart(test.flags...)
			scenarios := all()
			scenarios[0].expect = internal + test.internal
			scenarios[1].expect = external + test.external
			scenarios[2].expect = test.far
			c.runScenarios(t, scenarios)
		})
	}
}
