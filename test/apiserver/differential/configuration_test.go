package differential

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/oracle"
	"github.com/nftproxy/nftproxy/test/random"
)

// configuration returns a random configuration of a proxy, as a file and for
// the oracle.
func configuration(g *random.Generator, kube *cluster.Cluster, pod *lab.Pod) (string, oracle.Config) {
	c := oracle.Config{MasqueradeAll: g.Chance(20)}
	lines := []string{fmt.Sprintf("nftables: {minSyncPeriod: 20ms, masqueradeAll: %v}", c.MasqueradeAll)}
	switch g.IntN(7) {
	case 0, 1:
		c.DetectLocalMode, c.ClusterCIDRs = "ClusterCIDR", lab.PodRanges()
	case 2:
		c.DetectLocalMode, c.ClusterCIDRs = "ClusterCIDR", lab.PodRanges()[:1]
	case 3:
		c.DetectLocalMode = "NodeCIDR"
	case 4:
		c.DetectLocalMode, c.InterfaceNamePrefix = "InterfaceNamePrefix", "veth"
		lines = append(lines, "detectLocal: {interfaceNamePrefix: veth}")
	case 5:
		c.DetectLocalMode, c.BridgeInterface = "BridgeInterface", pod.HostInterface
		lines = append(lines, "detectLocal: {bridgeInterface: "+pod.HostInterface+"}")
	}
	if c.ClusterCIDRs != nil {
		lines = append(lines, "clusterCIDR: "+joined(c.ClusterCIDRs))
	}
	if c.DetectLocalMode != "" {
		lines = append(lines, "detectLocalMode: "+c.DetectLocalMode)
	}
	nodePorts := random.Pick(g, [][]string{
		nil, {"primary"}, {"0.0.0.0/0", "::/0"}, {"172.30.0.0/28"}, {"172.30.0.21/32", "fd00:30::/64"},
	})
	for _, text := range nodePorts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			c.NodePortCIDRs = append(c.NodePortCIDRs, prefix)
		} else {
			c.NodePortPrimary = true
		}
	}
	if nodePorts != nil {
		lines = append(lines, `nodePortAddresses: ["`+strings.Join(nodePorts, `", "`)+`"]`)
	}
	return kube.Configuration("nftables", "node1", lines...), c
}

func joined[T fmt.Stringer](values []T) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, v.String())
	}
	return strings.Join(texts, ",")
}
