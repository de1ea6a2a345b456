package ruleset

import "github.com/nftproxy/nftproxy/nft"

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
