package proxier

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
)

// Chains that rows and rules refer to by name.
const (
	chainServices        = "services"
	chainExternalLocal   = "external-local"
	chainNodePortLocal   = "nodeport-local"
	chainReject          = "reject-chain"
	chainFirewallCheck   = "firewall-check"
	chainServicesCheck   = "service-endpoints-check"
	chainNodePortsCheck  = "nodeport-endpoints-check"
	chainClusterIPsCheck = "cluster-ips-check"
	chainMasquerading    = "masquerading"
)

// programConfig is all that the program of a table depends on: this node's configuration, and nothing about Services.
type programConfig struct {
	layout        *layout
	mark          uint32 // the packet mark's bit that asks for masquerading
	masqueradeAll bool
	fromPod       *localMatch // nil if pods cannot be told from others
	serviceCIDRs  []netip.Prefix
	nodePortsAll  bool // NodePorts listen on all local addresses, not only on those in nodeport-ips
}

// localMatch matches traffic of this cluster's pods, and the rest of it.
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

// baseChains returns the chains where packets enter:
//
//	type filter hook prerouting priority dstnat - 10    the firewall, ahead of DNAT
//	type filter hook input/forward/output               what DNAT left over: reject or drop
//	type nat hook prerouting/output                     DNAT
//	type nat hook postrouting                           masquerading
func (c *programConfig) baseChains() []*nft.Chain {
	base := func(name string, typ nft.ChainType, point nft.HookPoint, priority int32, rules ...nft.Rule) *nft.Chain {
		return &nft.Chain{Name: name, Hook: &nft.Hook{Type: typ, Point: point, Priority: priority}, Rules: rules}
	}
	jump := func(chain string) nft.Rule { return nft.NewRule(nft.Jump(chain)) }
	firewall := nft.NewRule(nft.CtStateNew(), nft.Jump(chainFirewallCheck))
	leftOver := func(checks ...string) (rules []nft.Rule) {
		rules = c.taken()
		for _, check := range checks {
			rules = append(rules, jump(check))
		}
		return rules
	}
	const preDNAT = nft.PriorityDstNAT - 10
	return []*nft.Chain{
		base("filter-prerouting-pre-dnat", nft.TypeFilter, nft.Prerouting, preDNAT, firewall),
		base("filter-output-pre-dnat", nft.TypeFilter, nft.Output, preDNAT, firewall),
		base("filter-input", nft.TypeFilter, nft.Input, nft.PriorityFilter, leftOver(chainNodePortsCheck, chainServicesCheck)...),
		base("filter-forward", nft.TypeFilter, nft.Forward, nft.PriorityFilter, leftOver(chainServicesCheck, chainClusterIPsCheck)...),
		base("filter-output", nft.TypeFilter, nft.Output, nft.PriorityFilter, leftOver(chainServicesCheck, chainClusterIPsCheck)...),
		base("nat-prerouting", nft.TypeNAT, nft.Prerouting, nft.PriorityDstNAT, jump(chainServices)),
		base("nat-output", nft.TypeNAT, nft.Output, nft.PriorityDstNAT, jump(chainServices)),
		base("nat-postrouting", nft.TypeNAT, nft.Postrouting, nft.PrioritySrcNAT, jump(chainMasquerading)),
	}
}

// taken lets packets go by the checks that these are not about: all but the first of a connection, and what DNAT sent to an endpoint. An endpoint that
// is a ClusterIP itself is none, and is checked.
//
//	ct state != new accept
//	ct status dnat ip daddr != @cluster-ips accept
func (c *programConfig) taken() []nft.Rule {
	accept := nft.Do(nft.VerdictAccept)
	return []nft.Rule{
		nft.NewRule(nft.CtStateNotNew(), accept),
		nft.NewRule(nft.CtStatusDNAT(), nft.NotIn(c.layout.clusterIPs, nft.Daddr(c.layout.family)), accept),
	}
}

// regularChains returns all chains of the program that are not base chains.
func (c *programConfig) regularChains() []*nft.Chain {
	chains := []*nft.Chain{c.firewallCheck()}
	for _, p := range protocols {
		chains = append(chains, c.firewall(p))
	}
	return append(chains,
		c.serviceEndpointsCheck(), c.nodePortEndpointsCheck(), c.clusterIPsCheck(), c.reject(),
		c.services(), c.externalLocal(), c.nodePortLocal(), c.masquerading())
}

// vip is the key of what is known by address: `ip daddr . meta l4proto . th dport`.
func (l *layout) vip() []nft.Expr {
	return []nft.Expr{nft.Daddr(l.family), nft.L4Proto(), nft.ThDport()}
}

// nodePort is the key of what is known by NodePort: `meta l4proto . th dport`.
func (l *layout) nodePort() []nft.Expr { return []nft.Expr{nft.L4Proto(), nft.ThDport()} }

// firewallCheck sends traffic to guarded LoadBalancer IPs to the firewall chain of its protocol:
//
//	ip daddr . meta l4proto . th dport vmap @firewall-ips
func (c *programConfig) firewallCheck() *nft.Chain {
	l := c.layout
	return &nft.Chain{Name: chainFirewallCheck, Rules: []nft.Rule{nft.NewRule(nft.VMap(l.firewallIPs, l.vip()...))}}
}

// firewallChain is the name of the firewall chain of a protocol.
func firewallChain(p Protocol) string { return "firewall-" + p.String() }

// firewall drops what does not come from the allowed sources:
//
//	ip daddr . tcp dport . ip saddr != @firewall-sources-tcp drop
func (c *programConfig) firewall(p Protocol) *nft.Chain {
	f := c.layout.family
	outside := nft.NotIn(c.layout.firewallSources[p], nft.Daddr(f), nft.Dport(uint8(p)), nft.Saddr(f))
	return &nft.Chain{Name: firewallChain(p), Rules: []nft.Rule{nft.NewRule(outside, nft.Drop())}}
}

// serviceEndpointsCheck rejects or drops what reached a VIP that has no endpoints for it:
//
//	ip daddr . meta l4proto . th dport vmap @no-endpoint-services
func (c *programConfig) serviceEndpointsCheck() *nft.Chain {
	l := c.layout
	return &nft.Chain{Name: chainServicesCheck, Rules: []nft.Rule{nft.NewRule(nft.VMap(l.noEndpointServices, l.vip()...))}}
}

// nodePortEndpointsCheck does the same for NodePorts:
//
//	ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
func (c *programConfig) nodePortEndpointsCheck() *nft.Chain {
	l := c.layout
	rule := nft.NewRule(append(c.toNodePortAddress(), nft.VMap(l.noEndpointNodePorts, l.nodePort()...))...)
	return &nft.Chain{Name: chainNodePortsCheck, Rules: []nft.Rule{rule}}
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

// clusterIPsCheck ends traffic to ClusterIPs that no service port took:
//
//	ip daddr @cluster-ips goto reject-chain
//	ip daddr 10.96.0.0/16 drop
func (c *programConfig) clusterIPsCheck() *nft.Chain {
	daddr := nft.Daddr(c.layout.family)
	rules := []nft.Rule{
		nft.NewRule(nft.In(c.layout.clusterIPs, daddr), nft.Goto(chainReject)).WithComment("Reject traffic to invalid ports of ClusterIPs"),
	}
	for _, p := range c.serviceCIDRs {
		rules = append(rules, nft.NewRule(nft.Within(daddr, p), nft.Drop()).WithComment("Drop traffic to unallocated ClusterIPs"))
	}
	return &nft.Chain{Name: chainClusterIPsCheck, Rules: rules}
}

// reject refuses at once in both families: with ICMPv6 alone a TCP client on this machine would wait a second for its
// retransmission, because the kernel drops the error while the socket is in connect().
//
//	meta l4proto tcp reject with tcp reset
//	reject
func (c *programConfig) reject() *nft.Chain {
	return &nft.Chain{Name: chainReject, Rules: []nft.Rule{
		nft.NewRule(nft.RejectTCPReset()),
		nft.NewRule(nft.Reject(c.layout.family)),
	}}
}

// services dispatches to service ports, and marks what needs masquerading on the way to a ClusterIP:
//
//	ip saddr != 10.244.0.0/16 ip daddr @cluster-ips meta mark set meta mark | 0x00004000
//	ip daddr . meta l4proto . th dport vmap @service-ips
//	ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
func (c *programConfig) services() *nft.Chain {
	l := c.layout
	var rules []nft.Rule
	toClusterIP := nft.In(l.clusterIPs, nft.Daddr(l.family))
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
		nft.NewRule(append(c.toNodePortAddress(), nft.VMap(l.serviceNodePorts, l.nodePort()...))...))
	return &nft.Chain{Name: chainServices, Rules: rules}
}

// externalLocal splits the traffic to addresses with externalTrafficPolicy Local (see localPolicy).
func (c *programConfig) externalLocal() *nft.Chain {
	l := c.layout
	return c.localPolicy(chainExternalLocal, l.clusterPolicyIPs, l.localPolicyIPs, l.vip())
}

// nodePortLocal splits the traffic to NodePorts with externalTrafficPolicy Local (see localPolicy).
func (c *programConfig) nodePortLocal() *nft.Chain {
	l := c.layout
	return c.localPolicy(chainNodePortLocal, l.clusterPolicyNodePts, l.localPolicyNodePorts, l.nodePort())
}

// localPolicy splits traffic under externalTrafficPolicy Local: this cluster's pods and this node itself may use all
// endpoints, the node with a source address that answers can find; the others only those of this node.
//
//	ip saddr 10.244.0.0/16 ip daddr . meta l4proto . th dport vmap @cluster-policy-ips
//	fib saddr type local meta mark set meta mark | 0x00004000
//	fib saddr type local ip daddr . meta l4proto . th dport vmap @cluster-policy-ips
//	ip daddr . meta l4proto . th dport vmap @local-policy-ips
func (c *programConfig) localPolicy(name string, cluster, local *nft.Set, key []nft.Expr) *nft.Chain {
	var rules []nft.Rule
	if c.fromPod != nil {
		rules = append(rules, nft.NewRule(c.fromPod.match, nft.VMap(cluster, key...)).WithComment("short-circuit pod traffic"))
	}
	rules = append(rules,
		nft.NewRule(nft.SaddrLocal(), nft.SetMarkBits(c.mark)).WithComment("masquerade local traffic"),
		nft.NewRule(nft.SaddrLocal(), nft.VMap(cluster, key...)).WithComment("short-circuit local traffic"),
		nft.NewRule(nft.VMap(local, key...)))
	return &nft.Chain{Name: name, Rules: rules}
}

// masquerading gives this node's address to what was marked, and to endpoints that reached themselves:
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
