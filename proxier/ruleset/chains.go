package ruleset

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// Names of chains that rows and rules refer to.
const (
	chainFirewall      = "firewall"
	chainServices      = "services"
	chainNodePorts     = "nodeports"
	chainExternalLocal = "external-local"
	chainNodePortLocal = "nodeport-local"
	chainMasquerading  = "masquerading"
	chainLocalhost     = "reject-localhost"
)

// commentMasqueradeAll is the comment of the rule that marks packets because of
// Config.MasqueradeAll.
const commentMasqueradeAll = "masquerade all clusterIP traffic"

// baseChains returns the chains that the kernel calls. All are of type nat, so
// only the first packet of a connection passes them. For example:
//
//	jump services
//	ip daddr @cluster-ips fib daddr type != local goto reject-unknown-port
//	ip daddr 10.96.0.0/16 fib daddr type != local goto drop-unallocated-address
//
// The refusals concern forwarded packets and clients of this node. A program
// of this node may serve other clients on an address of a service CIDR. In
// output they match `ct state new` instead: the kernel sends the reset of a
// rejected connection through the chain, and the client's address can be a
// ClusterIP, too, if ClusterIPs are addresses of this node.
func (p *program) baseChains() []*nft.Chain {
	base := func(point nft.HookPoint, priority int32, to string, refusals []nft.Rule) *nft.Chain {
		return &nft.Chain{
			Name:  BaseChainName(point),
			Hook:  &nft.Hook{Type: nft.ChainTypeNAT, Point: point, Priority: priority},
			Rules: append([]nft.Rule{nft.NewRule(nft.Jump(to))}, refusals...),
		}
	}
	output := base(nft.Output, nft.PriorityDstNAT, chainServices, p.refusals(nft.CtStateNew()))
	if p.localhost {
		output.Rules = slices.Insert(output.Rules, 0, p.toLocalhost())
	}
	return []*nft.Chain{
		base(nft.Prerouting, nft.PriorityDstNAT, chainServices, p.refusals(nft.DaddrNotLocal())),
		output,
		base(nft.Postrouting, nft.PrioritySrcNAT, chainMasquerading, nil),
	}
}

// refusals returns the rules that reject or drop packets to addresses of
// Services that no service port serves, if they match a condition.
func (p *program) refusals(condition nft.Statement) []nft.Rule {
	refuse := func(to nft.Statement, r Reason, comment string) nft.Rule {
		return nft.NewRule(to, condition, nft.Goto(r.name())).WithComment(comment)
	}
	daddr := nft.Daddr(p.layout.family)
	rules := []nft.Rule{
		refuse(nft.In(p.layout.clusterIPs, daddr), UnknownPort, "Reject traffic to invalid ports of ClusterIPs"),
	}
	for _, cidr := range p.serviceCIDRs { // one or two: an anonymous set is not worth it
		rules = append(rules, refuse(nft.Within(daddr, cidr), UnallocatedAddress,
			"Drop traffic to unallocated ClusterIPs"))
	}
	return rules
}

// regularChains returns the chains of the program that are not base chains.
func (p *program) regularChains() []*nft.Chain {
	chains := []*nft.Chain{p.firewall()}
	if p.localhost {
		chains = append(chains, p.rejectLocalhost())
	}
	// Kernels before 6.12 validate all chains that a row leads to, once for
	// each row. Therefore each chain rejects packets itself, and the firewall
	// chains count packets themselves.
	chains = append(chains, p.reject(NoEndpoints), p.noLocalEndpoints(), p.reject(NoWeight), p.reject(UnknownPort),
		drop(UnallocatedAddress))
	return append(chains, p.services(), p.nodePorts(),
		p.localPolicy(&p.layout.vips), p.localPolicy(&p.layout.nodePorts), p.masquerading())
}

// noLocalEndpoints returns the chain for packets to a service port with a
// traffic policy Local that has no endpoint on this node. If connections to
// endpoints that are gone are reset, a packet without SYN belongs to one of
// them:
//
//	counter name "drop-no-local-endpoints"
//	tcp flags syn drop
//	reject with tcp reset
//	drop
func (p *program) noLocalEndpoints() *nft.Chain {
	if !p.resetStale {
		return drop(NoLocalEndpoints)
	}
	return &nft.Chain{Name: NoLocalEndpoints.name(), Rules: []nft.Rule{
		nft.NewRule(nft.Count(NoLocalEndpoints.Counter())),
		nft.NewRule(nft.TCPHasSyn(), nft.Drop()),
		nft.NewRule(nft.RejectTCPReset()),
		nft.NewRule(nft.Drop()),
	}}
}

// reject returns the chain of a reason to reject packets. TCP needs a reset:
// after an ICMPv6 error alone, a TCP client on this machine waits one second
// for its retransmission, because the kernel drops the error while the socket
// is in connect().
//
//	counter name "reject-no-endpoints"
//	meta l4proto tcp reject with tcp reset
//	reject
func (p *program) reject(r Reason) *nft.Chain {
	return &nft.Chain{Name: r.name(), Rules: []nft.Rule{
		nft.NewRule(nft.Count(r.Counter())),
		nft.NewRule(nft.RejectTCPReset()),
		nft.NewRule(nft.Reject(p.layout.family)),
	}}
}

// drop returns the chain of a reason to drop packets:
//
//	counter name "drop-no-local-endpoints" drop
func drop(r Reason) *nft.Chain {
	return &nft.Chain{Name: r.name(), Rules: []nft.Rule{nft.NewRule(nft.Count(r.Counter()), nft.Drop())}}
}

// firewall drops packets from sources that are not allowed. There is a rule for
// each length of a prefix that source ranges have:
//
//	ip daddr . meta l4proto . th dport . ip saddr & 255.255.0.0 @firewall-sources-16 return
//	ip daddr . meta l4proto . th dport . ip saddr @firewall-sources-32 return
//	counter name "drop-source-range" drop
//
// Shorter prefixes are first, because they allow more clients.
func (p *program) firewall() *nft.Chain {
	c := &nft.Chain{Name: chainFirewall}
	for _, set := range p.sources {
		bits := slices.Index(p.layout.firewallSources, set) + 1
		key := append(slices.Clip(p.layout.vips.key), nft.Network(nft.Saddr(p.layout.family), bits))
		c.Rules = append(c.Rules, nft.NewRule(nft.In(set, key...), nft.Return()))
	}
	c.Rules = append(c.Rules, nft.NewRule(nft.Count(SourceRange.Counter()), nft.Drop()))
	return c
}

// toNodePortAddress matches the addresses on which NodePorts listen:
//
//	ip daddr @nodeport-ips
//
// or, if NodePorts listen on all addresses,
//
//	fib daddr type local ip daddr != 127.0.0.0/8
func (p *program) toNodePortAddress() []nft.Statement {
	f := p.layout.family
	if !p.nodePortsAll {
		return []nft.Statement{nft.In(p.layout.nodePortIPs, nft.Daddr(f))}
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

// services checks source ranges, marks traffic to ClusterIPs for masquerading,
// and dispatches to service ports:
//
//	ip daddr . meta l4proto . th dport vmap @firewall-ips
//	ip saddr != 10.244.0.0/16 ip daddr @cluster-ips meta mark set meta mark | 0x00004000
//	ip daddr . meta l4proto . th dport vmap @service-ips
//	ip daddr . meta l4proto . th dport @local-ips goto external-local
//	ip daddr . meta l4proto . th dport vmap @no-endpoint-services
//	ip daddr @nodeport-ips goto nodeports
//
// Kernels before 6.12 validate a chain once for each element of a verdict map
// that leads to it, so a verdict map must not lead to a chain with a verdict
// map. This is why local-ips is a plain set.
func (p *program) services() *nft.Chain {
	l := p.layout
	toClusterIP := nft.In(l.clusterIPs, nft.Daddr(l.family))
	rules := []nft.Rule{nft.NewRule(nft.VMap(l.firewallIPs, l.vips.key...))}
	rules = append(rules, p.countConnections(&l.vips)...)
	switch {
	case p.masqueradeAll:
		rules = append(rules, nft.NewRule(toClusterIP, nft.SetMarkBits(p.mark)).
			WithComment(commentMasqueradeAll))
	case p.fromPod != nil:
		rules = append(rules, nft.NewRule(p.fromPod.matchNot, toClusterIP, nft.SetMarkBits(p.mark)).
			WithComment("masquerade clusterIP traffic from outside cluster"))
	}
	rules = append(rules, dispatchRules(&l.vips)...)
	rules = append(rules, nft.NewRule(append(p.toNodePortAddress(), nft.Goto(chainNodePorts))...))
	return &nft.Chain{Name: chainServices, Rules: rules}
}

// dispatchRules dispatches packets by VIP or NodePort.
func dispatchRules(d *dispatchSets) []nft.Rule {
	return []nft.Rule{
		nft.NewRule(nft.VMap(d.services, d.key...)),
		nft.NewRule(nft.In(d.isLocal, d.key...), nft.Goto(d.localChain)),
		nft.NewRule(nft.VMap(d.noEndpoints, d.key...)),
	}
}

// nodePorts dispatches and rejects traffic to addresses on which NodePorts
// listen:
//
//	meta l4proto . th dport vmap @service-nodeports
//	meta l4proto . th dport @local-nodeports goto nodeport-local
//	meta l4proto . th dport vmap @no-endpoint-nodeports
func (p *program) nodePorts() *nft.Chain {
	d := &p.layout.nodePorts
	return &nft.Chain{Name: chainNodePorts, Rules: append(p.countConnections(d), dispatchRules(d)...)}
}

// localPolicy splits traffic under externalTrafficPolicy Local. This cluster's
// pods and this node may use all endpoints. The node's traffic is masqueraded,
// so that it gets the answers. All other clients may use the endpoints of this
// node only.
//
//	ip saddr 10.244.0.0/16 ip daddr . meta l4proto . th dport vmap @cluster-policy-ips
//	fib saddr type local meta mark set meta mark | 0x00004000
//	fib saddr type local ip daddr . meta l4proto . th dport vmap @cluster-policy-ips
//	ip daddr . meta l4proto . th dport vmap @local-policy-ips
//	goto drop-no-local-endpoints
func (p *program) localPolicy(d *dispatchSets) *nft.Chain {
	var rules []nft.Rule
	if p.fromPod != nil {
		rules = append(rules, nft.NewRule(p.fromPod.match, nft.VMap(d.cluster, d.key...)).
			WithComment("short-circuit pod traffic"))
	}
	rules = append(rules,
		nft.NewRule(nft.SaddrLocal(), nft.SetMarkBits(p.mark)).WithComment("masquerade local traffic"),
		nft.NewRule(nft.SaddrLocal(), nft.VMap(d.cluster, d.key...)).WithComment("short-circuit local traffic"),
		nft.NewRule(nft.VMap(d.local, d.key...)),
		nft.NewRule(nft.Goto(NoLocalEndpoints.name())))
	return &nft.Chain{Name: d.localChain, Rules: rules}
}

// masquerading gives this node's address to marked connections, and to
// connections from an endpoint to itself (hairpin):
//
//	meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
//	ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
func (p *program) masquerading() *nft.Chain {
	l := p.layout
	return &nft.Chain{Name: chainMasquerading, Rules: []nft.Rule{
		nft.NewRule(nft.MarkHas(p.mark), nft.FlipMarkBits(p.mark), nft.MasqueradeFullyRandom()),
		nft.NewRule(nft.CtStatusDNAT(),
			nft.In(l.hairpin, nft.Saddr(l.family), nft.Daddr(l.family), nft.L4Proto(), nft.ThDport()),
			nft.MasqueradeFullyRandom()),
	}}
}
