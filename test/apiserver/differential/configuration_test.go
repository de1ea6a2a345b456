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
	ranges, none := lab.PodRanges(), "{}"
	detect := random.Pick(g, []struct {
		oracle.Config
		clusterCIDR, detectLocal string
	}{
		{oracle.Config{DetectLocalMode: "ClusterCIDR", ClusterCIDRs: ranges}, joined(ranges), none},
		{oracle.Config{DetectLocalMode: "ClusterCIDR", ClusterCIDRs: ranges}, joined(ranges), none},
		{oracle.Config{DetectLocalMode: "ClusterCIDR", ClusterCIDRs: ranges[:1]}, joined(ranges[:1]), none},
		{oracle.Config{DetectLocalMode: "NodeCIDR"}, `""`, none},
		{oracle.Config{DetectLocalMode: "InterfaceNamePrefix", InterfaceNamePrefix: "veth"}, `""`,
			"{interfaceNamePrefix: veth}"},
		{oracle.Config{DetectLocalMode: "BridgeInterface", BridgeInterface: pod.HostInterface}, `""`,
			"{bridgeInterface: " + pod.HostInterface + "}"},
		{oracle.Config{}, `""`, none},
	})
	c := detect.Config
	c.MasqueradeAll = g.Chance(20)
	lines := []string{
		fmt.Sprintf("nftables: {minSyncPeriod: 20ms, masqueradeAll: %v}", c.MasqueradeAll),
		fmt.Sprintf("detectLocalMode: %q", c.DetectLocalMode), "clusterCIDR: " + detect.clusterCIDR,
		"detectLocal: " + detect.detectLocal,
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

func joined(ranges []netip.Prefix) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ranges), " ", ","), "[]")
}
