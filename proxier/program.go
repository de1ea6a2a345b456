package proxier

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
)

// Chains that rows and rules refer to by name.
const (
	chainServices      = "services"
	chainNodePorts     = "nodeports"
	chainExternalLocal = "external-local"
	chainNodePortLocal = "nodeport-local"
	chainReject        = "reject-chain"
	chainMasquerading  = "masquerading"
)

// programConfig is all that the program of a table depends on: the configuration
// of this node, and nothing of Services.
type programConfig struct {
	layout        *layout
	mark          uint32 // the bit of the packet mark that asks for masquerading
	masqueradeAll bool
	fromPod       *localMatch // nil if traffic of pods cannot be recognized
	serviceCIDRs  []netip.Prefix
	nodePortsAll  bool // NodePorts listen on all local addresses, not only on those in nodeport-ips
}

// localMatch matches the traffic of this cluster's pods, and all other traffic.
type localMatch struct{ match, matchNot nft.Statement }

// table returns the table: its sets and the chains of the program.
func (c *programConfig) table() *nft.Table {
	return &nft.Table{
		Family:  c.layout.family,
		Name:    TableName,
		Comment: "rules for kube-proxy",
		Sets:    c.layout.sets(!c.nodePortsAll),
		Chains:  append(c.regularChains(), c.baseChains()...),
	}
}

// baseChains returns the chains where packets enter. All are of type nat: the
// kernel shows them the first packet of a connection only.
func (c *programConfig) baseChains() []*nft.Chain {
	base := func(name string, point nft.HookPoint, priority int32, to string) *nft.Chain {
		return &nft.Chain{
			Name:  name,
			Hook:  &nft.Hook{Type: nft.ChainTypeNAT, Point: point, Priority: priority},
			Rules: []nft.Rule{nft.NewRule(nft.Jump(to))},
		}
	}
	return []*nft.Chain{
		base("nat-prerouting", nft.Prerouting, nft.PriorityDstNAT, chainServices),
		base("nat-output", nft.Output, nft.PriorityDstNAT, chainServices),
		base("nat-postrouting", nft.Postrouting, nft.PrioritySrcNAT, chainMasquerading),
	}
}

// regularChains returns the chains of the program that are not base chains.
func (c *programConfig) regularChains() []*nft.Chain {
	var chains []*nft.Chain
	for _, p := range protocols {
		chains = append(chains, c.firewall(p))
	}
	return append(chains, c.reject(), c.services(), c.nodePorts(), c.externalLocal(), c.nodePortLocal(), c.masquerading())
}

// vip returns the key of maps by address: `ip daddr . meta l4proto . th dport`.
func (l *layout) vip() []nft.Expr {
	return []nft.Expr{nft.Daddr(l.family), nft.L4Proto(), nft.ThDport()}
}

// nodePort returns the key of maps by NodePort: `meta l4proto . th dport`.
func (l *layout) nodePort() []nft.Expr { return []nft.Expr{nft.L4Proto(), nft.ThDport()} }

// firewallChain returns the name of the firewall chain of a protocol.
func firewallChain(p Protocol) string { return "firewall-" + p.String() }

// firewall drops what does not come from an allowed source:
//
//	ip daddr . tcp dport . ip saddr != @firewall-sources-tcp drop
func (c *programConfig) firewall(p Protocol) *nft.Chain {
	f := c.layout.family
	outside := nft.NotIn(c.layout.firewallSources[p], nft.Daddr(f), nft.Dport(uint8(p)), nft.Saddr(f))
	return &nft.Chain{Name: firewallChain(p), Rules: []nft.Rule{nft.NewRule(outside, nft.Drop())}}
}

// toNodePortAddress matches the addresses on which NodePorts listen:
//
//	ip daddr @nodeport-ips                             or, if they listen on all,
//	fib daddr type local ip daddr != 127.0.0.0/8
func (c *programConfig) toNodePortAddress() []nft.Statement {
	f := c.layout.family
	if !c.nodePortsAll {
		return []nft.Statement{nft.In(c.layout.nodePortIPs, nft.Daddr(f))}
	}
	return []nft.Statement{nft.DaddrLocal(), nft.NotWithin(nft.Daddr(f), loopback(f))}
}

// loopback returns the loopback addresses of a family.
func loopback(f nft.Family) netip.Prefix {
	if f == nft.IPv4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
	}
	return netip.PrefixFrom(netip.IPv6Loopback(), 128)
}

// reject answers at once in both families. With ICMPv6 alone, a TCP client on
// this machine would wait one second for its retransmission, because the kernel
// drops the error while the socket is in connect().
//
//	meta l4proto tcp reject with tcp reset
//	reject
func (c *programConfig) reject() *nft.Chain {
	return &nft.Chain{Name: chainReject, Rules: []nft.Rule{
		nft.NewRule(nft.RejectTCPReset()),
		nft.NewRule(nft.Reject(c.layout.family)),
	}}
}

// services checks source ranges, marks traffic to ClusterIPs for masquerading,
// dispatches to service ports, and refuses what no service port serves:
//
//	ip daddr . meta l4proto . th dport vmap @firewall-ips
//	ip saddr != 10.244.0.0/16 ip daddr @cluster-ips meta mark set meta mark | 0x00004000
//	ip daddr . meta l4proto . th dport vmap @service-ips
//	ip daddr . meta l4proto . th dport @local-ips goto external-local
//	ip daddr . meta l4proto . th dport vmap @no-endpoint-services
//	ip daddr @nodeport-ips goto nodeports
//	ip daddr @cluster-ips goto reject-chain
//	ip daddr 10.96.0.0/16 drop
//
// Kernels before 6.12 validate a chain once for each element of a verdict map
// that leads to it, so a verdict map must not lead to a chain with a verdict map.
// This is why local-ips is a plain set.
func (c *programConfig) services() *nft.Chain {
	l := c.layout
	daddr := nft.Daddr(l.family)
	toClusterIP := nft.In(l.clusterIPs, daddr)
	rules := []nft.Rule{nft.NewRule(nft.VMap(l.firewallIPs, l.vip()...))}
	switch {
	case c.masqueradeAll:
		rules = append(rules, nft.NewRule(toClusterIP, nft.SetMarkBits(c.mark)).
			WithComment("masquerade all clusterIP traffic"))
	case c.fromPod != nil:
		rules = append(rules, nft.NewRule(c.fromPod.matchNot, toClusterIP, nft.SetMarkBits(c.mark)).
			WithComment("masquerade clusterIP traffic from outside cluster"))
	}
	rules = append(rules,
		nft.NewRule(nft.VMap(l.serviceIPs, l.vip()...)),
		nft.NewRule(nft.In(l.localIPs, l.vip()...), nft.Goto(chainExternalLocal)),
		nft.NewRule(nft.VMap(l.noEndpointServices, l.vip()...)),
		nft.NewRule(append(c.toNodePortAddress(), nft.Goto(chainNodePorts))...),
		nft.NewRule(toClusterIP, nft.Goto(chainReject)).WithComment("Reject traffic to invalid ports of ClusterIPs"))
	for _, p := range c.serviceCIDRs { // one or two: not worth an anonymous set
		rules = append(rules, nft.NewRule(nft.Within(daddr, p), nft.Drop()).WithComment("Drop traffic to unallocated ClusterIPs"))
	}
	return &nft.Chain{Name: chainServices, Rules: rules}
}

// nodePorts dispatches and refuses what is for an address on which NodePorts
// listen:
//
//	meta l4proto . th dport vmap @service-nodeports
//	meta l4proto . th dport @local-nodeports goto nodeport-local
//	meta l4proto . th dport vmap @no-endpoint-nodeports
func (c *programConfig) nodePorts() *nft.Chain {
	l := c.layout
	return &nft.Chain{Name: chainNodePorts, Rules: []nft.Rule{
		nft.NewRule(nft.VMap(l.serviceNodePorts, l.nodePort()...)),
		nft.NewRule(nft.In(l.localNodePorts, l.nodePort()...), nft.Goto(chainNodePortLocal)),
		nft.NewRule(nft.VMap(l.noEndpointNodePorts, l.nodePort()...)),
	}}
}

// externalLocal splits the traffic to addresses with externalTrafficPolicy Local
// (see localPolicy).
func (c *programConfig) externalLocal() *nft.Chain {
	l := c.layout
	return c.localPolicy(chainExternalLocal, l.clusterPolicyIPs, l.localPolicyIPs, l.vip())
}

// nodePortLocal splits the traffic to NodePorts with externalTrafficPolicy Local
// (see localPolicy).
func (c *programConfig) nodePortLocal() *nft.Chain {
	l := c.layout
	return c.localPolicy(chainNodePortLocal, l.clusterPolicyNodePts, l.localPolicyNodePorts, l.nodePort())
}

// localPolicy splits traffic under externalTrafficPolicy Local. This cluster's
// pods and this node may use all endpoints; the node's traffic is masqueraded, so
// that answers find back. All other clients may use the endpoints of this node.
//
//	ip saddr 10.244.0.0/16 ip daddr . meta l4proto . th dport vmap @cluster-policy-ips
//	fib saddr type local meta mark set meta mark | 0x00004000
//	fib saddr type local ip daddr . meta l4proto . th dport vmap @cluster-policy-ips
//	ip daddr . meta l4proto . th dport vmap @local-policy-ips
//	drop
func (c *programConfig) localPolicy(name string, cluster, local *nft.Set, key []nft.Expr) *nft.Chain {
	var rules []nft.Rule
	if c.fromPod != nil {
		rules = append(rules, nft.NewRule(c.fromPod.match, nft.VMap(cluster, key...)).WithComment("short-circuit pod traffic"))
	}
	rules = append(rules,
		nft.NewRule(nft.SaddrLocal(), nft.SetMarkBits(c.mark)).WithComment("masquerade local traffic"),
		nft.NewRule(nft.SaddrLocal(), nft.VMap(cluster, key...)).WithComment("short-circuit local traffic"),
		nft.NewRule(nft.VMap(local, key...)),
		nft.NewRule(nft.Drop()).WithComment("no endpoint on this node"))
	return &nft.Chain{Name: name, Rules: rules}
}

// masquerading gives this node's address to marked connections, and to
// connections of endpoints to themselves:
//
//	meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
//	ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
func (c *programConfig) masquerading() *nft.Chain {
	l := c.layout
	return &nft.Chain{Name: chainMasquerading, Rules: []nft.Rule{
		nft.NewRule(nft.MarkHas(c.mark), nft.FlipMarkBits(c.mark), nft.MasqueradeFullyRandom()),
		nft.NewRule(nft.CtStatusDNAT(),
			nft.In(l.hairpin, nft.Saddr(l.family), nft.Daddr(l.family), nft.L4Proto(), nft.ThDport()),
			nft.MasqueradeFullyRandom()),
	}}
}
