package proxier

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
)

// localMatch returns how this cluster's pods are told from others in the family of b, nil if they cannot be.
func (b *Backend) localMatch() *localMatch {
	f := b.layout.family
	d := &b.config.DetectLocal
	switch d.Mode {
	case DetectLocalClusterCIDR:
		return fromPrefix(f, d.ClusterCIDRs)
	case DetectLocalNodeCIDR:
		return fromPrefix(f, b.node.PodCIDRs)
	case DetectLocalBridgeInterface:
		return fromInterface(d.BridgeInterface)
	case DetectLocalInterfaceNamePrefix:
		return fromInterface(d.InterfaceNamePrefix + "*")
	}
	return nil
}

// fromPrefix matches the sources of the first prefix of the family:
//
//	ip saddr 10.244.0.0/16
func fromPrefix(f nft.Family, prefixes []netip.Prefix) *localMatch {
	for _, p := range prefixes {
		if f.Of(p.Addr()) {
			return &localMatch{nft.Within(nft.Saddr(f), p), nft.NotWithin(nft.Saddr(f), p)}
		}
	}
	return nil
}

// fromInterface matches what comes in by an interface:
//
//	iifname "veth*"
func fromInterface(name string) *localMatch {
	return &localMatch{nft.InInterface(name), nft.NotInInterface(name)}
}

// nodePortIPs returns the addresses of the family on which NodePorts listen. None means all, if the primary ones were asked for.
func (b *Backend) nodePortIPs() []netip.Addr {
	ips := b.node.NodePortIPs
	if primary, _ := b.config.NodePortAddresses.of(b.layout.family); primary {
		ips = b.node.IPs
	}
	var out []netip.Addr
	for _, ip := range ips {
		if b.layout.family.Of(ip) && !ip.IsLoopback() {
			out = append(out, ip)
		}
	}
	return out
}

// rowsOfNode returns the rows that are about this node, and about no Service.
func (b *Backend) rowsOfNode(c *programConfig) []nft.Row {
	if c.nodePortsAll {
		return nil
	}
	var rows []nft.Row
	for _, ip := range b.nodePortIPs() {
		rows = append(rows, nft.Row{Set: b.layout.nodePortIPs, Key: nft.Tuple{}.Addr(ip)})
	}
	return rows
}
