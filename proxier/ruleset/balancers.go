package ruleset

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/rendezvous"
)

// Most service ports share balancers. A service port with session affinity
// (sticky.go) or with a number (class.go) has chains of its own instead: one
// for each list of endpoints that its frontends use.

// hasChains reports whether the service port has chains of its own.
func (p *Plan) hasChains() bool { return p.HasAffinity() || p.Number != 0 }

// chainName returns the name of a chain of the service port. It contains no
// slash, because kube-proxy deletes all chains with a slash.
func (p *Plan) chainName(k chainKind) string {
	if p.HasAffinity() {
		return affinityPrefixes[k] + p.AffinityName()
	}
	return portPrefixes[k] + strconv.Itoa(int(p.Number))
}

// chainKinds returns the kinds of the chains of a service port.
func (p *Plan) chainKinds() (found []chainKind) {
	if p == nil || !p.hasChains() {
		return nil
	}
	var used [chainKinds]bool
	for _, f := range p.Frontends {
		k := f.ownKind()
		used[k] = true
		used[toAll] = used[toAll] || k == toExternal || f.splitsClients() // see masquerade
	}
	for _, k := range []chainKind{toExternal, toAll, toLocal} {
		if used[k] && p.list(k.policy()).rows() > 0 {
			found = append(found, k)
		}
	}
	return found
}

// Session affinity needs chains for each service port, because only a rule for
// one endpoint can write the id of that endpoint to an affinity set.

// affinityPrefixes are the prefixes of the names of these chains.
// namespace.name.protocol.port follows, or namespace.name.protocol for a port
// without a name. Before it, chains for known clients have the number of a
// group, and chains for new clients the index of a target.
var (
	affinityPrefixes = map[chainKind]string{
		toAll: "affinity.", toLocal: "affinity-local.", toExternal: "affinity-external.",
	}
	knownPrefixes = map[chainKind]string{toAll: "affinity-known.", toLocal: "affinity-local-known."}
	newPrefixes   = map[chainKind]string{toAll: "affinity-new.", toLocal: "affinity-local-new."}
)

// portPrefixes are the prefixes of the names of the chains of numbered service
// ports. The number follows.
var portPrefixes = map[chainKind]string{toAll: "port-", toLocal: "port-local-", toExternal: "port-external-"}

// Chains returns the chains of a service port. A nil plan, and a service port
// that uses balancers, have none.
func (r *Ruleset) Chains(p *Plan) (chains []*nft.Chain) {
	for _, kind := range p.chainKinds() {
		switch {
		case kind == toExternal:
			chains = append(chains, r.masquerade(p))
		case p.Number != 0:
			chains = append(chains, r.numberChain(p, kind))
		default:
			chains = append(chains, r.sticky(p, kind).chains()...)
		}
	}
	return chains
}

// ChainNames returns the names of the chains that Chains returns.
func (r *Ruleset) ChainNames(p *Plan) (names []string) {
	for _, kind := range p.chainKinds() {
		if p.HasAffinity() && kind != toExternal {
			names = append(names, r.sticky(p, kind).names()...)
			continue
		}
		names = append(names, p.chainName(kind))
	}
	return names
}

// masquerade marks traffic for masquerading before its endpoint is
// selected. For port-external-7 it is
//
//	meta mark set meta mark | 0x00004000
//	goto port-7
func (r *Ruleset) masquerade(p *Plan) *nft.Chain {
	return &nft.Chain{Name: p.chainName(toExternal), Rules: []nft.Rule{
		nft.NewRule(nft.SetMarkBits(r.config.mark())),
		nft.NewRule(nft.Goto(p.chainName(toAll))),
	}}
}

// AffinitySet returns the set that the chains of a service port use, nil if the
// service port has no chains.
func (r *Ruleset) AffinitySet(p *Plan) *nft.Set {
	if !p.HasAffinity() || len(p.chainKinds()) == 0 {
		return nil
	}
	return r.layout.affinity[p.ClientSet]
}

// A service port that hashes clients, or whose endpoints have weights, has
// slots: many for each endpoint. Chains draw a slot, and each slot is a row.
// (For users, they are the rows of a hash table.) The slots depend on the
// endpoints and their weights only, so all nodes that use the same endpoints
// have the same ones.

// maxSlotted is the number of targets that can have slots.
const maxSlotted = 1 << 16

// hasSlots reports whether the service ports of a Service have slots. weights
// reports whether endpoints have weights. Session affinity has priority over
// hashes and weights.
func hasSlots(svc *cluster.Service, weights bool) bool {
	return svc.AffinityTimeout == 0 && (weights || svc.Balance != cluster.BalanceRandom)
}

// IsWeightless reports whether an endpoint of a Service gets no new connections
// because of its weight.
func IsWeightless(svc *cluster.Service, weight cluster.Weight) bool {
	return weight.Int() == 0 && hasSlots(svc, true)
}

// HasWeights reports whether an endpoint has another weight than the default.
func HasWeights(endpoints []*cluster.Endpoint) bool {
	return slices.ContainsFunc(endpoints, func(e *cluster.Endpoint) bool { return e.Weight != 0 })
}

// HasWeights reports whether a target has another weight than the default.
func (p *Plan) HasWeights() bool { return haveWeights(p.Cluster) || haveWeights(p.Local) }

func haveWeights(targets []Target) bool {
	return slices.ContainsFunc(targets, func(t Target) bool { return t.Weight != 0 })
}

// slotCount returns the number of slots of n targets, at most, if a number is
// wanted.
func slotCount(n, wanted int) int {
	if n < 2 {
		return n
	}
	return rendezvous.Size(min(n, maxSlotted), wanted)
}

// setSlots computes the slots of a plan with targets.
func (p *Plan) setSlots() error {
	p.ClusterSlots, p.LocalSlots = nil, nil
	if !hasSlots(p.Service, p.HasWeights()) {
		return nil
	}
	if n := max(len(p.Cluster), len(p.Local)); n > maxSlotted {
		return fmt.Errorf("%d endpoints are more than %d, the maximum with hashes or weights", n, maxSlotted)
	}
	p.ClusterSlots, p.LocalSlots = p.slotsOf(p.Cluster), p.slotsOf(p.Local)
	return nil
}

// slotsOf returns the slots of a list of targets. There is one slot for each
// target with a weight above 0 if there is only one, or if their shares are
// equal and random.
func (p *Plan) slotsOf(targets []Target) []uint16 {
	hashed := p.Service.Balance != cluster.BalanceRandom
	if len(targets) == 0 || !hashed && !haveWeights(targets) {
		return nil
	}
	order := make([]uint16, 0, len(targets))
	equal := true
	for i, t := range targets {
		if t.Weight.Int() > 0 {
			order = append(order, uint16(i))
			equal = equal && t.Weight == targets[order[0]].Weight
		}
	}
	if len(order) < 2 || equal && !hashed {
		return order
	}
	slices.SortFunc(order, func(a, b uint16) int {
		return targets[a].AddrPort().Compare(targets[b].AddrPort())
	})
	endpoints := make([]rendezvous.Endpoint, len(order))
	for i, t := range order {
		endpoints[i] = rendezvous.Endpoint{AddrPort: targets[t].AddrPort(), Weight: targets[t].Weight.Int()}
	}
	slots := rendezvous.Table(endpoints, p.Slots)
	for i, e := range slots {
		slots[i] = order[e]
	}
	return slots
}
