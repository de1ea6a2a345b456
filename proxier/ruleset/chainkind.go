package ruleset

import (
	"strconv"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Most service ports share balancers. A service port with session affinity
// (affinity.go) or with a number (number.go) has chains of its own instead: one
// for each list of endpoints that its frontends use.

// chainKind is a kind of chain of one service port.
type chainKind uint8

const (
	toAllMasqueraded chainKind = iota // all usable endpoints, masqueraded
	toAll                             // all usable endpoints
	toLocal                           // endpoints of this node
	chainKinds
)

// hasChains reports whether the service port has chains of its own.
func (p *Plan) hasChains() bool { return p.HasAffinity() || p.Number != 0 }

// chainName returns the name of a chain of the service port. It contains no
// slash, because kube-proxy deletes all chains with a slash.
func (p *Plan) chainName(k chainKind) string {
	if p.HasAffinity() {
		return [...]string{affinityExternalPrefix, affinityPrefix, affinityLocalPrefix}[k] + p.AffinityName()
	}
	return [...]string{portExternalPrefix, portPrefix, portLocalPrefix}[k] + strconv.Itoa(int(p.Number))
}

// chainKind returns the kind of chain that selects an endpoint for a frontend's
// traffic. With externalTrafficPolicy Local, this is the traffic that may use
// the endpoints of this node only.
func (f ServedFrontend) chainKind() chainKind {
	switch {
	case f.Policy == cluster.PolicyLocal:
		return toLocal
	case f.IsClusterIP():
		return toAll
	}
	return toAllMasqueraded
}

// splitsClients reports whether externalTrafficPolicy Local applies to a
// frontend: which endpoints a client may use depends on where it is.
func (f ServedFrontend) splitsClients() bool {
	return f.Policy == cluster.PolicyLocal && !f.IsClusterIP()
}

// use returns the number of frontends that use each kind of chain, if the
// service port has chains of its own.
func (p *Plan) use() (use [chainKinds]int) {
	for _, f := range p.Frontends {
		kind := f.chainKind()
		use[kind]++
		if f.splitsClients() {
			use[toAll]++
		}
	}
	return use
}

// chainKinds returns the kinds of the chains of a service port.
func (p *Plan) chainKinds() (kinds []chainKind) {
	if p == nil || !p.hasChains() {
		return nil
	}
	use := p.use()
	use[toAll] += use[toAllMasqueraded] // see masquerade
	for k := range chainKinds {
		if use[k] > 0 && p.rowsOf(k) > 0 {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// targets returns the targets of a kind of chain.
func (p *Plan) targets(k chainKind) []Target {
	if k == toLocal {
		return p.Local
	}
	return p.Cluster
}

// Chains returns the chains of a service port. A nil plan, and a service port
// that uses balancers, have none.
func (r *Ruleset) Chains(p *Plan) (chains []*nft.Chain) {
	for _, kind := range p.chainKinds() {
		switch {
		case kind == toAllMasqueraded:
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
		if p.HasAffinity() && kind != toAllMasqueraded {
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
	return &nft.Chain{Name: p.chainName(toAllMasqueraded), Rules: []nft.Rule{
		nft.NewRule(nft.SetMarkBits(r.config.mark())),
		nft.NewRule(nft.Goto(p.chainName(toAll))),
	}}
}
