package ruleset

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Program is the part of a table that depends on the node and its
// configuration, and not on Services.
type Program struct {
	// Table contains the sets and the chains, of which the base chains are the
	// last. The chains that Services need are not part of it.
	Table *nft.Table
	// Rows are the rows that no service port has.
	Rows []nft.Row
	// NodePortAddrs are the addresses on which NodePorts listen. The
	// unspecified address stands for all local addresses. It is never nil.
	NodePortAddrs []netip.Addr
	// LoopbackAddrs are the loopback addresses of the node that
	// nodePortAddresses selects. Only health checks listen there.
	LoopbackAddrs []netip.Addr
}

// MakeProgram returns the program for a node, with the sets of source ranges
// that are used (see SourceSets).
func (r *Ruleset) MakeProgram(node *cluster.Node, sources ...*nft.Set) *Program {
	ips := r.NodePortAddrs(node)
	p := &program{
		Ruleset: r, node: node, sources: sources, fromPod: r.config.DetectLocal.match(r.layout.family, node),
		nodePortsAll: slices.Contains(ips, r.layout.family.Unspecified()),
	}
	out := &Program{
		Table: p.table(), NodePortAddrs: ips, Rows: r.layout.fixedRows(),
		LoopbackAddrs: r.config.NodePortAddresses.loopbackOn(r.layout.family, node),
	}
	if p.nodePortsAll {
		return out
	}
	for _, ip := range ips {
		out.Rows = append(out.Rows, nft.Row{Set: r.layout.nodePortIPs, Key: nft.Tuple{}.Addr(ip)})
	}
	return out
}

// NodePortAddrs returns the addresses of a node on which NodePorts listen. The
// unspecified address stands for all local addresses.
func (r *Ruleset) NodePortAddrs(node *cluster.Node) []netip.Addr {
	return r.config.NodePortAddresses.on(r.layout.family, node)
}

// on returns the addresses of a node on which NodePorts listen. NodePorts
// listen on all addresses of a family that has no CIDR and no known primary
// address.
func (a NodePortAddresses) on(f nft.Family, node *cluster.Node) []netip.Addr {
	all, cidrs := []netip.Addr{f.Unspecified()}, f.Prefixes(a.CIDRs)
	if slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		return all
	}
	out := []netip.Addr{}
	add := func(ips []netip.Addr, except []netip.Addr) {
		for _, ip := range ips {
			if f.Of(ip) && !ip.IsLoopback() && !slices.Contains(except, ip) {
				out = append(out, ip)
			}
		}
	}
	if len(cidrs) > 0 {
		add(node.NodePortIPs, nil)
	}
	if a.primary() {
		add(node.IPs, out)
	}
	if len(cidrs) == 0 && len(out) == 0 {
		return all
	}
	return out
}

// loopbackOn returns the selected loopback addresses of a node.
func (a NodePortAddresses) loopbackOn(f nft.Family, node *cluster.Node) []netip.Addr {
	if len(f.Prefixes(a.CIDRs)) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(node.NodePortIPs), func(ip netip.Addr) bool {
		return !f.Of(ip) || !ip.IsLoopback()
	})
}

// match returns the match for traffic of this cluster's pods. It is nil if the
// pods of the family cannot be recognized.
func (d *LocalDetection) match(f nft.Family, node *cluster.Node) *localMatch {
	switch d.Mode {
	case DetectLocalClusterCIDR:
		return fromPrefix(f, d.ClusterCIDRs)
	case DetectLocalNodeCIDR:
		return fromPrefix(f, node.PodCIDRs)
	case DetectLocalBridgeInterface:
		return fromInterface(d.BridgeInterface)
	case DetectLocalInterfaceNamePrefix:
		return fromInterface(d.InterfaceNamePrefix + "*")
	}
	return nil
}

// fromPrefix matches packets from the first prefix of the family:
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

// fromInterface matches packets that arrive on an interface:
//
//	iifname "veth*"
func fromInterface(name string) *localMatch {
	return &localMatch{nft.InInterface(name), nft.NotInInterface(name)}
}

func (p *program) table() *nft.Table {
	t := &nft.Table{
		Family:  p.layout.family,
		Name:    TableName,
		Comment: "rules for kube-proxy",
		Sets:    p.sets(),
		Chains:  append(p.regularChains(), p.baseChains()...),
	}
	for _, reason := range Refusals() {
		t.Counters = append(t.Counters, reason.Counter())
	}
	if p.config.RetryAfter > 0 {
		t.CtTimeouts = p.ctTimeouts()
	}
	for _, proto := range p.rejectedOnLocalhost() {
		t.Counters = append(t.Counters, LocalhostCounter(proto))
	}
	return t
}

// sets returns the sets in the order in which they are written.
func (p *program) sets() []*nft.Set {
	l := p.layout
	sets := []*nft.Set{l.clusterIPs}
	vips, nodePorts := l.vips.sets(), l.nodePorts.sets()
	for i := range len(vips) - 1 { // the last one is optional
		sets = append(sets, vips[i], nodePorts[i])
	}
	sets = append(append(sets, l.localClassChains, l.portTargets), p.sources...)
	sets = append(sets, l.hairpin, l.reservedIDs)
	if !p.nodePortsAll {
		sets = append(sets, l.nodePortIPs)
	}
	if len(p.rejectedOnLocalhost()) > 0 {
		sets = append(sets, l.localhostNodePorts)
	}
	if p.config.ServiceMetrics.Enabled() {
		sets = append(sets, l.vips.connections, l.nodePorts.connections)
	}
	return sets
}
