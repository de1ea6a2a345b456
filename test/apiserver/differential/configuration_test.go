package differential

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

// configuration returns a random configuration of a proxy.
func (g *generator) configuration(kube *cluster.Cluster, interfaceOfPod string) string {
	lines := []string{fmt.Sprintf("nftables: {minSyncPeriod: 20ms, masqueradeAll: %v}", g.Chance(20))}
	lines = append(lines, random.Pick(g.Generator, [][]string{
		{"clusterCIDR: " + joined(lab.PodRanges())},
		{"clusterCIDR: " + joined(lab.PodRanges())},
		{"clusterCIDR: " + lab.PodRanges()[0].String()},
		{"detectLocalMode: NodeCIDR"},
		{"detectLocalMode: InterfaceNamePrefix", "detectLocal: {interfaceNamePrefix: veth}"},
		{"detectLocalMode: BridgeInterface", "detectLocal: {bridgeInterface: " + interfaceOfPod + "}"},
		nil,
	})...)
	lines = append(lines, random.Pick(g.Generator, [][]string{
		nil,
		{`nodePortAddresses: [primary]`},
		{`nodePortAddresses: ["0.0.0.0/0", "::/0"]`},
		{`nodePortAddresses: ["172.30.0.0/28"]`},
		{`nodePortAddresses: ["172.30.0.21/32", "fd00:30::/64"]`},
	})...)
	return kube.Configuration("nftables", "node1", lines...)
}

func joined[T fmt.Stringer](values []T) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, v.String())
	}
	return strings.Join(texts, ",")
}
