package trace

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// tablePrefix begins the name of each table of this package. The rest is the
// netlink port of the owner, which is usually its process id. No other process
// of the network namespace can have the same port.
const tablePrefix = "nftproxy-trace-"

// Chains of the table.
const (
	chainPrerouting        = "prerouting"
	chainOutput            = "output"
	chainPreroutingTracked = "prerouting-tracked"
	chainOutputTracked     = "output-tracked"
	chainPreroutingLast    = "prerouting-last"
	chainOutputLast        = "output-last"
	chainForward           = "forward"
	chainInput             = "input"
	chainPostrouting       = "postrouting"

	chainAccepted = "accepted" // report replies to traced TCP packets
	chainRefused  = "refused"
	chainError    = "icmp-error"

	chainFirst  = "first"  // traces packets that begin a connection
	chainSample = "sample" // traces some UDP packets
	chainKnown  = "known"  // ends the trace of other UDP packets
)

// Priorities of base chains. Connection tracking has -200, and chains of the
// priority raw see packets before it.
const (
	beforeRaw     int32 = -301
	afterTracking int32 = -199
	beforeOthers  int32 = math.MinInt32
	afterOthers   int32 = math.MaxInt32 - 1 // connection tracking stores the connection last
)

// Limits of traced packets per second, for each rule that traces.
const (
	firstRate  = 10
	sampleRate = 5
	errorRate  = 50 // ICMP errors of all connections
)

// Limits of the clients whose replies are reported.
const (
	clientTime = 2 * time.Minute
	maxClients = 4096
)

// rules builds the table of one family.
type rules struct {
	family               nft.Family
	selection            *Selection
	frontends, nodePorts *nft.Set
	endpoints            *nft.Set
	clients              *nft.Set // of traced packets, nil unless TCP is traced
	rows                 []nft.Row
}

// tableOf returns the table that traces the packets of a selection, and its
// rows. It changes nothing else in packets.
//
// TCP and SCTP show in a packet whether it begins a connection, so these
// packets are traced from the beginning. For UDP, only connection tracking
// knows. UDP packets that begin a flow are traced after connection tracking.
// Some others are traced before, and no longer if their flow is known: chains
// of the priority raw can drop packets, too.
func tableOf(f nft.Family, selection *Selection, name string) (*nft.Table, []nft.Row) {
	r := &rules{family: f, selection: selection}
	r.addRows()
	t := &nft.Table{Family: f, Name: name, Owned: true}
	if r.selection.traces(cluster.TCP) {
		r.clients = &nft.Set{
			Name: "clients", Key: nft.Types(nft.TypeAddr(f), nft.TypeInetService), Dynamic: true, Size: maxClients,
		}
		t.Sets = append(t.Sets, r.clients)
		t.Chains = append(t.Chains,
			reporting(chainAccepted), reporting(chainRefused),
			reporting(chainError, nft.LimitRate(errorRate, errorRate)))
	}
	t.Chains = append(t.Chains, r.tracing(chainFirst, firstRate))
	if r.selection.traces(cluster.UDP) {
		known := &nft.Chain{Name: chainKnown, Rules: []nft.Rule{nft.NewRule(nft.UnsetTrace())}}
		t.Chains = append(t.Chains, r.tracing(chainSample, sampleRate), known)
	}
	for _, s := range []*nft.Set{r.frontends, r.nodePorts, r.endpoints} {
		if s.Size > 0 {
			t.Sets = append(t.Sets, s)
		}
	}
	t.Chains = append(t.Chains, r.baseChains()...)
	return t, r.rows
}

// baseChains returns the chains that select packets, and those that only report
// how far a traced packet came. The last chains before routing also report its
// destination after the translation.
func (r *rules) baseChains() (chains []*nft.Chain) {
	if !r.selection.Source.NotOthers {
		notOwn := nft.NotInInterface("lo") // packets of this node were in the hook output before
		chains = append(chains, base(chainPrerouting, nft.Prerouting, beforeRaw, r.untracked(notOwn)...))
		if r.selection.traces(cluster.UDP) {
			chains = append(chains, base(chainPreroutingTracked, nft.Prerouting, afterTracking, r.tracked(notOwn)...))
		}
	}
	if !r.selection.Source.NotNode {
		chains = append(chains, base(chainOutput, nft.Output, beforeRaw, r.untracked()...))
		if r.selection.traces(cluster.UDP) {
			chains = append(chains, base(chainOutputTracked, nft.Output, afterTracking, r.tracked()...))
		}
	}
	return append(chains,
		base(chainPreroutingLast, nft.Prerouting, afterOthers),
		base(chainOutputLast, nft.Output, afterOthers),
		base(chainForward, nft.Forward, beforeOthers),
		base(chainInput, nft.Input, afterOthers, r.replies()...),
		base(chainPostrouting, nft.Postrouting, afterOthers, r.replies()...))
}

// replies returns the rules of the last base chains, in which the addresses of
// a reply are those that the client knows:
//
//	tcp flags syn ip daddr . tcp dport @clients jump accepted
//	tcp flags rst ip daddr . tcp dport @clients jump refused
//	meta l4proto icmp ct state related jump icmp-error
func (r *rules) replies() []nft.Rule {
	if r.clients == nil {
		return nil
	}
	known := nft.In(r.clients, nft.Daddr(r.family), nft.ThDport())
	return []nft.Rule{
		nft.NewRule(nft.TCPHasSyn(), known, nft.Jump(chainAccepted)),
		nft.NewRule(nft.TCPHasReset(), known, nft.Jump(chainRefused)),
		nft.NewRule(nft.MatchL4Proto(icmpOf(r.family)), nft.CtStateRelated(), nft.Jump(chainError)),
	}
}

func icmpOf(f nft.Family) uint8 {
	if f == nft.IPv4 {
		return unix.IPPROTO_ICMP
	}
	return unix.IPPROTO_ICMPV6
}

// reporting returns a chain whose name is the kind of a reply. Its first rule
// reports the packet, the second one ends the trace of it.
func reporting(name string, match ...nft.Statement) *nft.Chain {
	return &nft.Chain{Name: name, Rules: []nft.Rule{
		nft.NewRule(append(match, nft.SetTrace())...), nft.NewRule(nft.UnsetTrace()),
	}}
}

// addRows adds the sets of frontends and their rows. The size of a set is that
// of its rows: a hash table that grows in one transaction can stall the kernel.
func (r *rules) addRows() {
	f := r.family
	r.frontends = &nft.Set{Name: "frontends", Key: nft.Types(nft.TypeAddr(f), nft.TypeInetProto, nft.TypeInetService)}
	r.nodePorts = &nft.Set{Name: "nodeports", Key: nft.Types(nft.TypeInetProto, nft.TypeInetService)}
	for _, frontend := range r.selection.Frontends {
		addr, port := frontend.Addr.Addr(), frontend.Addr.Port()
		if !f.Of(addr) || !r.selection.traces(frontend.Protocol) {
			continue
		}
		row := nft.Row{Set: r.frontends, Key: nft.Tuple{}.Addr(addr).Proto(uint8(frontend.Protocol)).Port(port)}
		if addr.IsUnspecified() {
			row = nft.Row{Set: r.nodePorts, Key: nft.Tuple{}.Proto(uint8(frontend.Protocol)).Port(port)}
		}
		r.addRow(row)
	}
	r.endpoints = &nft.Set{Name: "endpoints", Key: r.frontends.Key}
	for e := range r.selection.Endpoints {
		if f.Of(e.Addr.Addr()) && r.selection.traces(e.Protocol) {
			key := nft.Tuple{}.Addr(e.Addr.Addr()).Proto(uint8(e.Protocol)).Port(e.Addr.Port())
			r.addRow(nft.Row{Set: r.endpoints, Key: key})
		}
	}
}

func (r *rules) addRow(row nft.Row) {
	r.rows = append(r.rows, row)
	row.Set.Size++
}

func base(name string, point nft.HookPoint, priority int32, rules ...nft.Rule) *nft.Chain {
	hook := &nft.Hook{Type: nft.ChainTypeFilter, Point: point, Priority: priority}
	return &nft.Chain{Name: name, Hook: hook, Rules: rules}
}

// tracing returns a chain that traces packets to selected destinations. The
// first packets of connections also add their client to a set, by `update
// @clients { ip saddr . th sport timeout 2m }`. Packets of this node to its
// endpoints, such as probes, are left out:
//
//	ip daddr . meta l4proto . th dport @frontends limit rate 10/second burst 10 packets meta nftrace set 1
//	fib daddr type local meta l4proto . th dport @nodeports limit rate 10/second burst 10 packets meta nftrace set 1
//	fib saddr type != local ip daddr . meta l4proto . th dport @endpoints limit rate 10/second burst 10 packets \
//		meta nftrace set 1
//	ip daddr 10.96.0.0/16 limit rate 10/second burst 10 packets meta nftrace set 1
func (r *rules) tracing(name string, rate uint32) *nft.Chain {
	c := &nft.Chain{Name: name}
	add := func(match ...nft.Statement) {
		match = append(match, nft.LimitRate(rate, rate))
		if r.clients != nil && name == chainFirst {
			match = append(match, nft.Update(r.clients, clientTime, nft.Saddr(r.family), nft.ThSport()))
		}
		c.Rules = append(c.Rules, nft.NewRule(append(match, nft.SetTrace())...))
	}
	daddr := nft.Daddr(r.family)
	if r.frontends.Size > 0 {
		add(nft.In(r.frontends, daddr, nft.L4Proto(), nft.ThDport()))
	}
	if r.nodePorts.Size > 0 {
		add(nft.DaddrLocal(), nft.In(r.nodePorts, nft.L4Proto(), nft.ThDport()))
	}
	if r.endpoints.Size > 0 {
		add(nft.SaddrNotLocal(), nft.In(r.endpoints, daddr, nft.L4Proto(), nft.ThDport()))
	}
	for _, p := range r.family.Prefixes(r.selection.Ranges) {
		add(nft.Within(daddr, p))
	}
	return c
}

// untracked returns the rules of a base chain before connection tracking:
//
//	ip saddr 10.244.1.7 tcp flags syn / syn,ack jump first
//	ip saddr 10.244.1.7 meta l4proto sctp @th,96,8 0x1 jump first
//	ip saddr 10.244.1.7 meta l4proto udp jump sample
func (r *rules) untracked(match ...nft.Statement) (rules []nft.Rule) {
	match = append(match, r.source()...)
	add := func(s nft.Statement, to string) {
		rules = append(rules, nft.NewRule(append(slices.Clone(match), s, nft.Jump(to))...))
	}
	if r.selection.traces(cluster.TCP) {
		add(nft.TCPSyn(), chainFirst)
	}
	if r.selection.traces(cluster.UDP) {
		add(nft.MatchL4Proto(uint8(cluster.UDP)), chainSample)
	}
	if r.selection.traces(cluster.SCTP) {
		add(nft.SCTPInit(), chainFirst)
	}
	return rules
}

// tracked returns the rules of a base chain after connection tracking:
//
//	ip saddr 10.244.1.7 meta l4proto udp ct state new,untracked jump first
//	ip saddr 10.244.1.7 meta l4proto udp ct state established,related jump known
func (r *rules) tracked(match ...nft.Statement) []nft.Rule {
	match = append(match, r.source()...)
	match = append(match, nft.MatchL4Proto(uint8(cluster.UDP)))
	return []nft.Rule{
		nft.NewRule(append(slices.Clone(match), nft.CtStateFirst(), nft.Jump(chainFirst))...),
		nft.NewRule(append(match, nft.CtStateKnown(), nft.Jump(chainKnown))...),
	}
}

// source matches the selected sources.
func (r *rules) source() (match []nft.Statement) {
	for _, p := range r.family.Prefixes(r.selection.Source.Within) { // at most one
		match = append(match, nft.Within(nft.Saddr(r.family), p))
	}
	for _, p := range r.family.Prefixes(r.selection.Source.Except) {
		match = append(match, nft.NotWithin(nft.Saddr(r.family), p))
	}
	return match
}

func tableName(port uint32) string { return fmt.Sprintf("%s%d", tablePrefix, port) }

// Selection selects packets: those to one of the frontends or ranges, from the
// source.
type Selection struct {
	Frontends []Frontend
	// Endpoints are endpoints on this node, with the names of their service
	// ports. Other nodes translate packets to them, which pass no rule of the
	// proxy here.
	Endpoints map[Frontend]string
	// Ranges are destinations with any port.
	Ranges []netip.Prefix
	// Protocol is the number of TCP, UDP or SCTP, 0 for all three.
	Protocol cluster.Protocol
	Source   Source
}

// Frontend is an address of a Service, or of an endpoint. A NodePort has the
// unspecified address.
type Frontend struct {
	Addr     netip.AddrPort
	Protocol cluster.Protocol
}

// Source selects packets by where they come from. The zero Source selects all.
type Source struct {
	// NotNode excludes packets of this node, NotOthers all other packets.
	NotNode, NotOthers bool
	// Within and Except are ranges of source addresses, at most one of each
	// family. If Within has ranges, all sources of a family without one are
	// excluded.
	Within, Except []netip.Prefix
}

// concerns reports whether it selects packets of a family.
func (s *Selection) concerns(f nft.Family) bool {
	frontend := slices.ContainsFunc(s.Frontends, func(frontend Frontend) bool { return f.Of(frontend.Addr.Addr()) })
	source := len(s.Source.Within) == 0 || len(f.Prefixes(s.Source.Within)) > 0
	return source && (frontend || len(f.Prefixes(s.Ranges)) > 0)
}

// traces reports whether it selects packets of a protocol.
func (s *Selection) traces(p cluster.Protocol) bool { return s.Protocol == 0 || s.Protocol == p }
