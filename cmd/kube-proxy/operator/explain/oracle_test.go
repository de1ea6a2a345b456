package explain_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/rendezvous"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// oracle computes the fate of packets from the objects of a cluster, as the
// Kubernetes documentation defines it. It does not use the code of package
// ruleset.
type oracle struct {
	objects
	host
	rules  ruleset.Config
	family nft.Family
}

// fate is an outcome without its probability.
type fate struct {
	action      explain.Action
	endpoint    netip.AddrPort
	masqueraded bool
	rejectWith  string
	reason      ruleset.Reason
}

func (f fate) String() string {
	return fmt.Sprintf("%s %s masqueraded=%v %s %s", f.action, f.endpoint, f.masqueraded, f.rejectWith, f.reason)
}

// fates are the outcomes of a packet, with their probabilities.
type fates map[fate]string

func certain(f fate) fates { return fates{f: "1"} }

func refuse(q explain.Query, reason ruleset.Reason) fates {
	with := "ICMP port unreachable"
	if q.Protocol == unix.IPPROTO_TCP {
		with = "TCP reset"
	}
	return certain(fate{action: explain.Reject, rejectWith: with, reason: reason})
}

func drop(reason ruleset.Reason) fates {
	return certain(fate{action: explain.Drop, reason: reason})
}

func pass(reason ruleset.Reason) fates {
	return certain(fate{action: explain.Pass, reason: reason})
}

// servicePort is a service port that claims a frontend.
type servicePort struct {
	service *cluster.Service
	port    cluster.ServicePort
	kind    string // of the address
}

// The kinds of addresses. The first has priority.
const (
	kindClusterIP    = "1 ClusterIP"
	kindLoadBalancer = "2 LoadBalancer IP"
	kindExternalIP   = "3 external IP"
	kindNodePort     = "NodePort"
)

func (s *servicePort) compare(o *servicePort) int {
	return cmp.Or(strings.Compare(s.kind, o.kind), s.service.Created.Compare(o.service.Created),
		s.service.Name.Compare(o.service.Name), strings.Compare(s.port.Name, o.port.Name))
}

// kindOf returns the kind of an address of a Service, "" if it has no such
// address.
func kindOf(svc *cluster.Service, addr netip.Addr) string {
	switch {
	case slices.Contains(svc.ClusterIPs, addr):
		return kindClusterIP
	case slices.Contains(svc.LoadBalancerIPs, addr):
		return kindLoadBalancer
	case slices.Contains(svc.ExternalIPs, addr):
		return kindExternalIP
	}
	return ""
}

// owner returns the service port that owns the destination of a packet, nil if
// none does.
func (o *oracle) owner(q explain.Query) *servicePort {
	var best *servicePort
	for _, svc := range o.services {
		for _, port := range svc.Ports {
			s := &servicePort{service: svc, port: port}
			switch kind := kindOf(svc, q.Destination.Addr()); {
			case port.Protocol != q.Protocol:
				continue
			case kind != "" && port.Port == q.Destination.Port():
				s.kind = kind
			case o.isNodePortAddr(q.Destination.Addr()) && port.NodePort == q.Destination.Port():
				s.kind = kindNodePort
			default:
				continue
			}
			if best == nil || s.compare(best) < 0 {
				best = s
			}
		}
	}
	return best
}

// isNodePortAddr reports whether NodePorts listen on an address.
func (o *oracle) isNodePortAddr(addr netip.Addr) bool {
	cidrs := o.rules.NodePortAddresses.CIDRs
	anyCIDR := func(ok func(netip.Prefix) bool) bool {
		return slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return o.family.Of(p.Addr()) && ok(p) })
	}
	switch {
	case addr.IsLoopback() || !o.isLocal(addr):
		return false
	case anyCIDR(func(p netip.Prefix) bool { return p.Bits() == 0 }):
		return true
	case slices.Contains(o.node.IPs, addr):
		return o.rules.NodePortAddresses.Primary || len(cidrs) == 0
	}
	return slices.Contains(o.node.NodePortIPs, addr) && anyCIDR(func(netip.Prefix) bool { return true })
}

// predict returns the outcomes of a packet.
func (o *oracle) predict(q explain.Query) fates {
	to := q.Destination.Addr()
	if to.IsLoopback() {
		return o.localhost(q)
	}
	if s := o.owner(q); s != nil {
		return o.served(q, s)
	}
	switch {
	case o.isNodePortAddr(to):
		return pass(ruleset.NoService)
	case o.isClusterIP(to):
		return refuse(q, ruleset.UnknownPort)
	case o.node.IsServiceAddr(to):
		return drop(ruleset.UnallocatedAddress)
	}
	return pass(ruleset.NoService)
}

// localhost returns the outcome of a packet to 127.0.0.1 or ::1. With NodePorts
// there, UDP and SCTP NodePorts are rejected.
func (o *oracle) localhost(q explain.Query) fates {
	listens := slices.ContainsFunc(o.rules.NodePortAddresses.CIDRs, func(p netip.Prefix) bool {
		return p.Addr().IsLoopback() && p.Contains(q.Destination.Addr())
	})
	if !o.rules.LocalhostNodePorts || !listens || q.Protocol == unix.IPPROTO_TCP {
		return pass(ruleset.Localhost)
	}
	for _, svc := range o.services {
		for _, port := range svc.Ports {
			if port.NodePort == q.Destination.Port() && port.Protocol == q.Protocol {
				return refuse(q, ruleset.Localhost)
			}
		}
	}
	return pass(ruleset.Localhost)
}

// isClusterIP reports whether an address is the ClusterIP of a Service that has
// a port there.
func (o *oracle) isClusterIP(addr netip.Addr) bool {
	for _, svc := range o.services {
		if slices.Contains(svc.ClusterIPs, addr) {
			return true
		}
	}
	return false
}

// served returns the outcomes of a packet to a frontend of a service port.
func (o *oracle) served(q explain.Query, s *servicePort) fates {
	if s.kind == kindLoadBalancer && !o.allows(s.service, q.Source) {
		return drop(ruleset.SourceRange)
	}
	all := o.candidates(s)
	everywhere := o.byHints(usable(all))
	here := usable(slices.DeleteFunc(slices.Clone(all), func(c endpoint) bool { return c.Node != o.node.Name }))
	switch {
	case len(everywhere) == 0:
		return refuse(q, ruleset.NoEndpoints)
	case s.kind == kindClusterIP && s.service.InternalPolicy == cluster.PolicyLocal:
		return o.toOneOf(q, s.service, here, o.masqueradesInternal(q))
	case s.kind == kindClusterIP:
		return o.toOneOf(q, s.service, everywhere, o.masqueradesInternal(q))
	case s.service.ExternalPolicy == cluster.PolicyCluster:
		return o.toOneOf(q, s.service, everywhere, ruleset.ExternalPolicy)
	case o.isPod(q):
		return o.toOneOf(q, s.service, everywhere, "")
	case o.isLocal(q.Source):
		return o.toOneOf(q, s.service, everywhere, ruleset.FromNode)
	}
	return o.toOneOf(q, s.service, here, "")
}

// masqueradesInternal returns the reason why traffic to a ClusterIP is
// masqueraded, "" if it is not.
func (o *oracle) masqueradesInternal(q explain.Query) ruleset.Reason {
	switch {
	case o.rules.MasqueradeAll:
		return ruleset.MasqueradeAll
	case o.knowsPods() && !o.isPod(q):
		return ruleset.OutsideCluster
	}
	return ""
}

// mainReason returns the reason that predict returns. Packets to an external
// address that another Service has as its ClusterIP can have two reasons for
// which they are masqueraded.
func (o *oracle) mainReason(q explain.Query, reason ruleset.Reason) ruleset.Reason {
	s := o.owner(q)
	if s != nil && s.kind != kindClusterIP && o.isClusterIP(q.Destination.Addr()) && reason != "" &&
		s.service.ExternalPolicy == cluster.PolicyCluster && reason == o.masqueradesInternal(q) {
		return ruleset.ExternalPolicy
	}
	return reason
}

// toOneOf returns the outcomes of a packet to one of some endpoints.
func (o *oracle) toOneOf(
	q explain.Query, svc *cluster.Service, endpoints []endpoint, masquerade ruleset.Reason,
) fates {
	if len(endpoints) == 0 {
		return drop(ruleset.NoLocalEndpoints)
	}
	shares := o.shares(q, svc, endpoints)
	if len(shares) == 0 {
		return refuse(q, ruleset.NoWeight)
	}
	out := make(fates)
	for _, e := range endpoints {
		reason := masquerade
		if reason == "" && e.at.Addr() == q.Source && (e.Node == o.node.Name || e.Node == "") {
			reason = ruleset.Hairpin
		}
		to := fate{action: explain.ToEndpoint, endpoint: e.at, masqueraded: reason != "", reason: reason}
		if share := shares[e.at]; share != nil {
			out[to] = share.RatString()
		}
	}
	return out
}

// shares returns the shares of a client's connections that endpoints get. Those
// without connections are left out.
func (o *oracle) shares(q explain.Query, svc *cluster.Service, endpoints []endpoint) map[netip.AddrPort]*big.Rat {
	shares := make(map[netip.AddrPort]*big.Rat)
	if svc.AffinityTimeout == 0 {
		endpoints = slices.DeleteFunc(slices.Clone(endpoints), func(e endpoint) bool { return e.weight == 0 })
	}
	other := func(e endpoint) bool { return e.weight != endpoints[0].weight }
	if svc.AffinityTimeout != 0 || svc.Balance == cluster.BalanceRandom && !slices.ContainsFunc(endpoints, other) {
		for _, e := range endpoints {
			shares[e.at] = big.NewRat(1, int64(len(endpoints)))
		}
		return shares
	}
	var sorted []rendezvous.Endpoint
	for _, e := range endpoints {
		sorted = append(sorted, rendezvous.Endpoint{AddrPort: e.at, Weight: e.weight})
	}
	slices.SortFunc(sorted, func(a, b rendezvous.Endpoint) int { return a.Compare(b.AddrPort) })
	rows := rendezvous.Table(sorted, cmp.Or(svc.HashTableSize, cluster.DefaultHashTableSize))
	if svc.Balance == cluster.BalanceSourceHash && len(rows) > 0 { // the port of the client is not known
		i := rowOf(o.family, q.Source, len(rows))
		rows = rows[i : i+1]
	}
	for _, i := range rows {
		at := sorted[i].AddrPort
		shares[at] = new(big.Rat).Add(cmp.Or(shares[at], new(big.Rat)), big.NewRat(1, int64(len(rows))))
	}
	return shares
}

// hashOnly is a table whose only rule hashes the address of the client.
type hashOnly struct {
	rule nft.Rule
	set  *nft.Set
	row  uint32
}

func (h *hashOnly) Rules(string) ([]nft.Rule, error) { return []nft.Rule{h.rule}, nil }
func (h *hashOnly) Set(string) (*nft.Set, error)     { return h.set, nil }

func (h *hashOnly) Row(_ *nft.Set, key nft.Tuple) (nft.Row, error) {
	h.row = key.FirstInteger()
	return nft.Row{}, nil
}

// rowOf returns the row of a client in a table of n rows. Package walk compares
// its hashes with the kernel.
func rowOf(f nft.Family, client netip.Addr, n int) uint32 {
	set := &nft.Set{Name: "rows", Key: nft.Types(nft.TypeClassID)}
	h := &hashOnly{rule: nft.NewRule(nft.In(set, nft.Jhash(uint32(n), 0x5eed, 0, nft.Saddr(f)))), set: set}
	p := walk.NewPath(walk.Packet{
		Source: netip.AddrPortFrom(client, 0), Destination: netip.AddrPortFrom(client, 0),
	})
	if _, err := walk.New(h, nil).Run(p, "rows"); err != nil {
		panic(err)
	}
	return h.row
}

// allows reports whether loadBalancerSourceRanges allow a client.
func (o *oracle) allows(svc *cluster.Service, client netip.Addr) bool {
	if svc.SourceRanges == nil {
		return true
	}
	contains := func(addr netip.Addr) bool {
		return slices.ContainsFunc(svc.SourceRanges, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	ofFamily := func(p netip.Prefix) bool { return o.family.Of(p.Addr()) }
	switch {
	case contains(client), len(svc.SourceRanges) > 0 && !slices.ContainsFunc(svc.SourceRanges, ofFamily):
		return true
	case slices.Contains(svc.LoadBalancerIPs, client):
		return slices.ContainsFunc(o.node.IPs, func(ip netip.Addr) bool { return o.family.Of(ip) && contains(ip) })
	}
	return false
}

// podRange returns the range of the cluster's pods, if it recognizes them.
func (o *oracle) podRange() (netip.Prefix, bool) {
	prefixes := map[ruleset.DetectLocalMode][]netip.Prefix{
		ruleset.DetectLocalClusterCIDR: o.rules.DetectLocal.ClusterCIDRs, ruleset.DetectLocalNodeCIDR: o.node.PodCIDRs,
	}[o.rules.DetectLocal.Mode]
	for _, p := range prefixes {
		if o.family.Of(p.Addr()) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// knowsPods reports whether the node can recognize the cluster's pods.
func (o *oracle) knowsPods() bool {
	_, byRange := o.podRange()
	return byRange || o.rules.DetectLocal.Mode == ruleset.DetectLocalBridgeInterface ||
		o.rules.DetectLocal.Mode == ruleset.DetectLocalInterfaceNamePrefix
}

// isPod reports whether a packet is from a pod of the cluster.
func (o *oracle) isPod(q explain.Query) bool {
	p, byRange := o.podRange()
	name := ""
	if !o.isLocal(q.Source) {
		name = o.interfaceOf(q.Source)
	}
	switch o.rules.DetectLocal.Mode {
	case ruleset.DetectLocalBridgeInterface:
		return name == o.rules.DetectLocal.BridgeInterface
	case ruleset.DetectLocalInterfaceNamePrefix:
		return strings.HasPrefix(name, o.rules.DetectLocal.InterfaceNamePrefix)
	}
	return byRange && p.Contains(q.Source)
}

// endpoint is an endpoint, and its address and port for a service port.
type endpoint struct {
	*cluster.Endpoint
	at     netip.AddrPort
	weight int // the highest one
}

// candidates returns the endpoints of a service port. An address and port in
// several slices counts once.
func (o *oracle) candidates(s *servicePort) []endpoint {
	best := make(map[netip.AddrPort]endpoint)
	for _, key := range slices.SortedFunc(maps.Keys(o.endpoints[s.service.Name]), cluster.EndpointKey.Compare) {
		e := o.endpoints[s.service.Name][key]
		for _, port := range e.Ports {
			at := netip.AddrPortFrom(e.Addr, cmp.Or(port.Port, s.port.Port))
			if port.Name != s.port.Name || port.Protocol != s.port.Protocol || o.node.IsServiceAddr(e.Addr) {
				continue
			}
			known, ok := best[at]
			if !ok || condition(e) > condition(known.Endpoint) {
				known.Endpoint = e
			}
			best[at] = endpoint{known.Endpoint, at, max(known.weight, e.Weight.Int())}
		}
	}
	return slices.Collect(maps.Values(best))
}

// condition is 2 for a ready endpoint, 1 for one that is serving and
// terminating, and 0 for others.
func condition(e *cluster.Endpoint) int {
	switch {
	case e.Ready:
		return 2
	case e.Serving && e.Terminating:
		return 1
	}
	return 0
}

// usable returns the ready endpoints. If none is ready, it returns those that
// are serving and terminating.
func usable(all []endpoint) []endpoint {
	byCondition := make(map[int][]endpoint)
	for _, e := range all {
		byCondition[condition(e.Endpoint)] = append(byCondition[condition(e.Endpoint)], e)
	}
	if len(byCondition[2]) > 0 {
		return byCondition[2]
	}
	return byCondition[1]
}

// byHints returns the endpoints with hints for this node or its zone, if all
// ready ones have hints and one of them is for it.
func (o *oracle) byHints(all []endpoint) []endpoint {
	for _, by := range []struct {
		name  string
		hints func(*cluster.Hints) []string
	}{
		{o.node.Name, func(h *cluster.Hints) []string { return h.Nodes }},
		{o.node.Zone, func(h *cluster.Hints) []string { return h.Zones }},
	} {
		without := func(e endpoint) bool { return !e.Ready || e.Hints == nil || len(by.hints(e.Hints)) == 0 }
		others := func(e endpoint) bool { return !slices.Contains(by.hints(e.Hints), by.name) }
		if by.name == "" || slices.ContainsFunc(all, without) {
			continue
		}
		if ours := slices.DeleteFunc(slices.Clone(all), others); len(ours) > 0 {
			return ours
		}
	}
	return all
}
