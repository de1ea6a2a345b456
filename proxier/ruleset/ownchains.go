package ruleset

import (
	"strconv"

	"github.com/nftproxy/nftproxy/nft"
)

// Most service ports share balancers. A service port with session affinity
// (affinity.go) or with a number (number.go) has chains of its own instead: one
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
