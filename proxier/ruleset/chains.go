package ruleset

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// program builds the chains of a Program.
type program struct {
	*Ruleset
	node         *cluster.Node
	sources      []*nft.Set  // of source ranges, by length of their prefixes
	fromPod      *localMatch // nil if pods cannot be recognized
	nodePortsAll bool        // NodePorts listen on all local addresses
}

// rejectedOnLocalhost returns the protocols whose NodePorts are rejected on
// localhost.
func (p *program) rejectedOnLocalhost() []cluster.Protocol {
	return p.config.RejectedOnLocalhost(p.layout.family)
}

// localMatch matches the traffic of this cluster's pods, and all other traffic.
type localMatch struct{ match, matchNot nft.Statement }

// commentMasqueradeAll is the comment of the rule that marks packets because of
// Config.MasqueradeAll.
const commentMasqueradeAll = "masquerade all clusterIP traffic"

// Priorities of the base chains. Of nat chains with the same priority, the
// kernel calls the one first that was registered last, and those of iptables
// cannot have others than dstnat and srcnat.
const (
	beforeDstNAT = nft.PriorityDstNAT - 1
	beforeSrcNAT = nft.PrioritySrcNAT - 1
)

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
	output := base(nft.Output, beforeDstNAT, chainServices, p.refusals(nft.CtStateNew()))
	if len(p.rejectedOnLocalhost()) > 0 {
		output.Rules = slices.Insert(output.Rules, 0, p.toLocalhost())
	}
	return []*nft.Chain{
		base(nft.Prerouting, beforeDstNAT, chainServices, p.refusals(nft.DaddrNotLocal())),
		output,
		base(nft.Postrouting, beforeSrcNAT, chainMasquerading, nil),
	}
}

// refusals returns the rules that reject or drop packets to addresses of
// Services that no service port serves, if they match a condition.
func (p *program) refusals(condition nft.Statement) []nft.Rule {
	refuse := func(to nft.Statement, r Code, comment string) nft.Rule {
		return nft.NewRule(to, condition, nft.Goto(r.name())).WithComment(comment)
	}
	daddr := nft.Daddr(p.layout.family)
	rules := []nft.Rule{
		refuse(nft.In(p.layout.clusterIPs, daddr), UnknownPort, "Reject traffic to invalid ports of ClusterIPs"),
	}
	for _, cidr := range p.layout.family.Prefixes(p.node.ServiceCIDRs) { // one or two: an anonymous set is not worth it
		rules = append(rules, refuse(nft.Within(daddr, cidr), UnallocatedAddress,
			"Drop traffic to unallocated ClusterIPs"))
	}
	return rules
}

// regularChains returns the chains of the program that are not base chains.
func (p *program) regularChains() []*nft.Chain {
	chains := []*nft.Chain{p.firewall()}
	if len(p.rejectedOnLocalhost()) > 0 {
		chains = append(chains, p.rejectLocalhost())
	}
	chains = append(chains, p.reject(NoEndpoints), p.noLocalEndpoints(), p.reject(NoWeight), p.reject(UnknownPort),
		drop(UnallocatedAddress), p.outsideCluster())
	for _, d := range []*dispatchSets{&p.layout.vips, &p.layout.nodePorts} {
		chains = append(chains, p.pick(d), p.serviceChains(d), p.localPolicy(d), p.allEndpoints(d))
	}
	chains = append(chains, p.pickPort())
	for _, to := range picks() {
		chains = append(chains, to.afterDraw())
	}
	chains = append(chains, p.retry()...)
	for _, chain := range slices.Sorted(maps.Values(guardedTargets())) {
		chains = append(chains, guard(chain))
	}
	return append(chains, p.services(), p.nodePorts(), p.masquerading())
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
	if !p.config.ResetStaleConnections {
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
func (p *program) reject(r Code) *nft.Chain {
	return &nft.Chain{Name: r.name(), Rules: []nft.Rule{
		nft.NewRule(nft.Count(r.Counter())),
		nft.NewRule(nft.RejectTCPReset()),
		nft.NewRule(nft.Reject(p.layout.family)),
	}}
}

// drop returns the chain of a reason to drop packets:
//
//	counter name "drop-no-local-endpoints" drop
func drop(r Code) *nft.Chain {
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

// guard returns the chain that checks source ranges before another chain:
//
//	jump firewall
//	goto reject-no-endpoints
func guard(chain string) *nft.Chain {
	return &nft.Chain{Name: guardedPrefix + chain, Rules: []nft.Rule{
		nft.NewRule(nft.Jump(chainFirewall)),
		nft.NewRule(nft.Goto(chain)),
	}}
}

// services finds the class of a VIP:
//
//	meta priority set ip daddr . meta l4proto . th dport map @service-classes meta priority vmap @class-chains
//	ip daddr @nodeport-ips goto nodeports
//
// The first rule must be one: after it, the priority is the packet's own if the
// first lookup misses.
func (p *program) services() *nft.Chain {
	return &nft.Chain{Name: chainServices, Rules: append(p.dispatch(&p.layout.vips),
		nft.NewRule(append(p.toNodePortAddress(), nft.Goto(chainNodePorts))...))}
}

// nodePorts finds the class of a NodePort:
//
//	meta priority set meta l4proto . th dport map @nodeport-classes meta priority vmap @nodeport-class-chains
func (p *program) nodePorts() *nft.Chain {
	return &nft.Chain{Name: chainNodePorts, Rules: p.dispatch(&p.layout.nodePorts)}
}

// dispatch counts connections, if that is configured, and finds the classes of
// VIPs or NodePorts.
func (p *program) dispatch(d *dispatchSets) []nft.Rule {
	return append(p.countConnections(d), toClass(d.classes, d.key, d.classChains))
}

// toClass returns the rule that looks up a class and goes to its chain.
func toClass(classes *nft.Set, key []nft.Expr, chains *nft.Set) nft.Rule {
	return nft.NewRule(nft.SetPriorityMap(classes, key...), nft.VMap(chains, nft.Priority()))
}

// outsideCluster marks traffic to ClusterIPs for masquerading:
//
//	ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00004000
func (p *program) outsideCluster() *nft.Chain {
	c := &nft.Chain{Name: chainOutsideCluster}
	switch {
	case p.config.MasqueradeAll:
		c.Rules = []nft.Rule{nft.NewRule(nft.SetMarkBits(p.config.mark())).WithComment(commentMasqueradeAll)}
	case p.fromPod != nil:
		c.Rules = []nft.Rule{nft.NewRule(p.fromPod.matchNot, nft.SetMarkBits(p.config.mark())).
			WithComment("masquerade clusterIP traffic from outside cluster")}
	}
	return c
}

// pick translates to the target that a balancer drew. It has the only rule that
// uses the map: for each rule that uses a map and is added, the kernel walks
// all rows of the map.
//
//	dnat ip to ip daddr . meta l4proto . th dport . meta priority map @service-targets
func (p *program) pick(d *dispatchSets) *nft.Chain {
	key := append(slices.Clip(d.key), nft.Priority())
	return &nft.Chain{Name: d.pick, Rules: []nft.Rule{nft.NewRule(nft.DNATMap(p.layout.family, d.targets, key...))}}
}

// pickPort translates to the target that the chain of a service port with a
// number drew:
//
//	meta l4proto tcp dnat ip to meta priority map @port-targets
//	meta l4proto udp dnat ip to meta priority map @port-targets
//	meta l4proto sctp dnat ip to meta priority map @port-targets
func (p *program) pickPort() *nft.Chain {
	c := &nft.Chain{Name: chainPickPort}
	for _, proto := range []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP} {
		c.Rules = append(c.Rules, nft.NewRule(nft.MatchL4Proto(uint8(proto)),
			nft.DNATMap(p.layout.family, p.layout.portTargets, nft.Priority())))
	}
	return c
}

// afterDraw looks up the target that a packet drew. A transaction can take
// effect between the lookup of the number of targets and this one. If the
// service port has fewer targets now, the packet gets the first one. `drawn` is
//
//	jump pick
//	meta priority set meta priority & ff00:1 | 0:1 goto pick
func (to pick) afterDraw() *nft.Chain {
	return &nft.Chain{Name: to.drawn, Rules: []nft.Rule{
		nft.NewRule(nft.Jump(to.chain)),
		nft.NewRule(nft.SetPriorityBits(firstIndex, to.mask), nft.Goto(to.chain)),
	}}
}

// serviceChains leads to the chains of service ports with chains of their own:
//
//	ip daddr @cluster-ips jump outside-cluster
//	ip daddr . meta l4proto . th dport vmap @service-ips
//	ip daddr . meta l4proto . th dport vmap @no-endpoint-services
func (p *program) serviceChains(d *dispatchSets) *nft.Chain {
	c := &nft.Chain{Name: d.own}
	if l := p.layout; d == &l.vips {
		c.Rules = []nft.Rule{nft.NewRule(nft.In(l.clusterIPs, nft.Daddr(l.family)), nft.Jump(chainOutsideCluster))}
	}
	c.Rules = append(c.Rules, nft.NewRule(nft.VMap(d.chains, d.key...)), nft.NewRule(nft.VMap(d.noEndpoints, d.key...)))
	return c
}

// localPolicy splits traffic under externalTrafficPolicy Local. This cluster's
// pods and this node may use all endpoints. The node's traffic is masqueraded,
// so that it gets the answers. All other clients may use the endpoints of this
// node only.
//
//	ip saddr 10.244.0.0/16 jump external-all
//	fib saddr type local meta mark set meta mark | 0x00004000 jump external-all
//	meta priority set ip daddr . meta l4proto . th dport map @local-policy-classes \
//	  meta priority vmap @local-class-chains
//	ip daddr . meta l4proto . th dport vmap @local-policy-ips
//	goto drop-no-local-endpoints
//
// Its verdict maps must not lead to a chain with a large verdict map: before
// Linux 6.12, the kernel validates a chain once for each row that leads to it.
func (p *program) localPolicy(d *dispatchSets) *nft.Chain {
	var rules []nft.Rule
	if p.fromPod != nil {
		rules = append(rules, nft.NewRule(p.fromPod.match, nft.Jump(d.allChain)).
			WithComment("short-circuit pod traffic"))
	}
	rules = append(rules,
		nft.NewRule(nft.SaddrLocal(), nft.SetMarkBits(p.config.mark()), nft.Jump(d.allChain)).
			WithComment("masquerade and short-circuit local traffic"),
		toClass(d.localClasses, d.key, p.layout.localClassChains),
		nft.NewRule(nft.VMap(d.localChains, d.key...)),
		nft.NewRule(nft.Goto(NoLocalEndpoints.name())))
	return &nft.Chain{Name: d.localChain, Rules: rules}
}

// allEndpoints leads to all endpoints under externalTrafficPolicy Local:
//
//	meta priority set ip daddr . meta l4proto . th dport map @cluster-policy-classes \
//	  meta priority vmap @local-class-chains
//	ip daddr . meta l4proto . th dport vmap @cluster-policy-ips
func (p *program) allEndpoints(d *dispatchSets) *nft.Chain {
	return &nft.Chain{Name: d.allChain, Rules: []nft.Rule{
		toClass(d.allClasses, d.key, p.layout.localClassChains),
		nft.NewRule(nft.VMap(d.allChains, d.key...)),
	}}
}

// masquerading gives this node's address to marked connections, and to
// connections from an endpoint to itself (hairpin). It clears the priority with
// which rules passed the drawn target: a queueing discipline, a VLAN device or
// a switch could interpret it.
//
//	meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 meta priority set none \
//	  masquerade fully-random
//	ct status dnat meta priority set none \
//	  ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
//	meta priority != none meta priority set ip daddr . meta l4proto . th dport map @service-classes \
//	  meta priority set none
//
// The last rule is for a target that is the VIP itself: such a translation does
// not count as one.
func (p *program) masquerading() *nft.Chain {
	l, none := p.layout, nft.SetPriorityTo(0)
	return &nft.Chain{Name: chainMasquerading, Rules: []nft.Rule{
		nft.NewRule(nft.MarkHas(p.config.mark()), nft.FlipMarkBits(p.config.mark()), none, nft.MasqueradeFullyRandom()),
		nft.NewRule(nft.CtStatusDNAT(), none,
			nft.In(l.hairpin, nft.Saddr(l.family), nft.Daddr(l.family), nft.L4Proto(), nft.ThDport()),
			nft.MasqueradeFullyRandom()),
		nft.NewRule(nft.HasPriority(), nft.SetPriorityMap(l.vips.classes, l.vips.key...), none),
	}}
}

// toLocalhost sends packets to NodePorts that localhost does not serve to a
// chain that rejects them. Other packets pass one comparison:
//
//	ip daddr 127.0.0.0/8 meta l4proto . th dport @localhost-nodeports goto reject-localhost
func (p *program) toLocalhost() nft.Rule {
	l := p.layout
	return nft.NewRule(
		nft.Within(nft.Daddr(l.family), loopback(l.family)),
		nft.In(l.localhostNodePorts, l.nodePorts.key...),
		nft.Goto(chainLocalhost))
}

// rejectLocalhost counts packets by protocol and rejects them:
//
//	meta l4proto udp counter name "localhost-nodeport-rejected-udp"
//	meta l4proto sctp counter name "localhost-nodeport-rejected-sctp"
//	meta l4proto tcp counter name "localhost-nodeport-rejected-tcp"
//	meta l4proto tcp reject with tcp reset
//	reject
func (p *program) rejectLocalhost() *nft.Chain {
	c := &nft.Chain{Name: chainLocalhost}
	for _, proto := range p.rejectedOnLocalhost() {
		c.Rules = append(c.Rules, nft.NewRule(nft.MatchL4Proto(uint8(proto)), nft.Count(LocalhostCounter(proto))))
	}
	if slices.Contains(p.rejectedOnLocalhost(), cluster.TCP) {
		c.Rules = append(c.Rules, nft.NewRule(nft.RejectTCPReset()))
	}
	c.Rules = append(c.Rules, nft.NewRule(nft.Reject(p.layout.family)))
	return c
}

// countConnections returns a rule that counts a connection, if connections are
// counted. Each row of the set counts the packets for which the rule finds it.
// The set has no verdicts, so the kernel does not validate it.
//
//	ip daddr . meta l4proto . th dport @service-connections
func (p *program) countConnections(d *dispatchSets) []nft.Rule {
	if !p.config.ServiceMetrics.Enabled() {
		return nil
	}
	return []nft.Rule{nft.NewRule(nft.In(d.connections, d.key...))}
}

// A userspace program serves TCP NodePorts on localhost (package localhost), if
// Config.Localhost. With the feature gate, NodePorts that it does not serve are
// rejected there and counted, as in kube-proxy (KEP-6032), so that no other
// program gets their packets.

// RejectedOnLocalhost returns the protocols whose NodePorts are rejected on the
// loopback addresses of a family.
func (c *Config) RejectedOnLocalhost(f nft.Family) []cluster.Protocol {
	switch {
	case !c.LocalhostNodePorts:
		return nil
	case c.Localhost(f):
		return localhostProtocols[:2]
	}
	return localhostProtocols[:]
}

// localhostProtocols are the protocols whose NodePorts localhost can reject. It
// serves the last one.
var localhostProtocols = [...]cluster.Protocol{cluster.UDP, cluster.SCTP, cluster.TCP}

// LocalhostCounters returns the counters of packets that can be rejected on
// localhost, by protocol.
func LocalhostCounters() map[cluster.Protocol]*nft.Counter {
	all := make(map[cluster.Protocol]*nft.Counter)
	for _, p := range localhostProtocols {
		all[p] = LocalhostCounter(p)
	}
	return all
}

// LocalhostCounter returns the counter of the packets of a protocol that are
// rejected on localhost.
func LocalhostCounter(p cluster.Protocol) *nft.Counter {
	return &nft.Counter{Name: "localhost-nodeport-rejected-" + p.String()}
}
