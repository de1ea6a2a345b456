package proxier

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// Session affinity needs chains of its own, because only a rule for one endpoint
// can write that endpoint's id into an affinity set. A service port with affinity
// has one chain for each list of endpoints that its frontends lead to.

// Prefixes of the names of these chains; namespace.name.protocol.port follows, or
// namespace.name.protocol for a port without a name.
// They have no slash: kube-proxy takes every chain with a slash for one of its
// own.
const (
	affinityPrefix         = "affinity."          // all usable endpoints
	affinityLocalPrefix    = "affinity-local."    // endpoints of this node
	affinityExternalPrefix = "affinity-external." // all usable endpoints, masqueraded
)

// affinityName returns a name for the service port in the names of chains.
func (p *plan) affinityName() string {
	name := p.service.Name.Namespace + "." + p.service.Name.Name + "." + p.port.Protocol.String()
	if p.port.Name == "" {
		return name
	}
	return name + "." + p.port.Name
}

// chains returns the chains that a service port needs for itself: none without
// session affinity.
func (r *renderer) chains(p *plan) []*nft.Chain {
	if p == nil || p.affinity() == 0 {
		return nil
	}
	use := p.affinityUse()
	var chains []*nft.Chain
	if use.external {
		chains = append(chains, r.affinityExternal(p))
	}
	if use.cluster {
		chains = append(chains, r.affinityChain(p, affinityPrefix, p.cluster))
	}
	if use.local {
		chains = append(chains, r.affinityChain(p, affinityLocalPrefix, p.local))
	}
	return chains
}

// chainNames returns the names of the chains that chains returns.
func (r *renderer) chainNames(p *plan) []string {
	if p == nil || p.affinity() == 0 {
		return nil
	}
	use, name := p.affinityUse(), p.affinityName()
	var names []string
	if use.external {
		names = append(names, affinityExternalPrefix+name)
	}
	if use.cluster {
		names = append(names, affinityPrefix+name)
	}
	if use.local {
		names = append(names, affinityLocalPrefix+name)
	}
	return names
}

// affinityUse are the chains that the frontends of a service port with affinity
// lead to.
type affinityUse struct{ cluster, local, external bool }

func (p *plan) affinityUse() affinityUse {
	var use affinityUse
	for _, f := range p.frontends {
		outside := f.kind != clusterIP
		use.cluster = use.cluster || f.policy == PolicyCluster || outside
		use.local = use.local || f.policy == PolicyLocal
		use.external = use.external || (outside && f.policy == PolicyCluster)
	}
	use.cluster = use.cluster && len(p.cluster) > 0
	use.external = use.external && len(p.cluster) > 0
	use.local = use.local && len(p.local) > 0
	return use
}

// affinitySetOf returns the set that the chains of a service port use, nil if it
// has no such chains.
func (r *renderer) affinitySetOf(p *plan) *nft.Set {
	if p == nil || p.affinity() == 0 {
		return nil
	}
	if use := p.affinityUse(); !use.cluster && !use.local {
		return nil
	}
	return r.layout.affinitySet(p.affinityName())
}

// affinityExternal marks traffic for masquerading before its endpoint is chosen:
//
//	meta mark set meta mark | 0x00004000
//	goto affinity.default.sticky.tcp.http
func (r *renderer) affinityExternal(p *plan) *nft.Chain {
	return &nft.Chain{Name: affinityExternalPrefix + p.affinityName(), Rules: []nft.Rule{
		nft.NewRule(nft.SetMarkBits(r.mark)),
		nft.NewRule(nft.Goto(affinityPrefix + p.affinityName())),
	}}
}

// affinityChain leads a client to the endpoint that it had, or else to any. Of
// the n rules for new clients, rule j takes 1/(n-j) of those that reach it. An
// `update` ends its rule when the set is full; then the last n rules serve the
// client without affinity. For two endpoints:
//
//	ip saddr . numgen inc mod 1 offset 4096 @clients-17 update @clients-17 { ip saddr . numgen inc mod 1 offset 4096 timeout 3h } meta l4proto tcp dnat to 10.244.1.8:8080
//	ip saddr . numgen inc mod 1 offset 4097 @clients-17 update @clients-17 { ip saddr . numgen inc mod 1 offset 4097 timeout 3h } meta l4proto tcp dnat to 10.244.2.8:8080
//	numgen random mod 2 0 update @clients-17 { ip saddr . numgen inc mod 1 offset 4096 timeout 3h } meta l4proto tcp dnat to 10.244.1.8:8080
//	update @clients-17 { ip saddr . numgen inc mod 1 offset 4097 timeout 3h } meta l4proto tcp dnat to 10.244.2.8:8080
//	numgen random mod 2 0 meta l4proto tcp dnat to 10.244.1.8:8080
//	meta l4proto tcp dnat to 10.244.2.8:8080
//
// The timeout is in the rule, because Linux 5.10 ignores a changed timeout of an
// existing set.
func (r *renderer) affinityChain(p *plan, prefix string, targets []target) *nft.Chain {
	name := p.affinityName()
	set := r.layout.affinitySet(name)
	n := len(targets)
	rules := make([]nft.Rule, 3*n)
	for j, t := range targets {
		client := []nft.Expr{nft.Saddr(r.layout.family), nft.Constant(t.id)}
		remember := nft.Update(set, p.affinity(), client...)
		send := []nft.Statement{nft.MatchL4Proto(uint8(p.port.Protocol)), nft.DNAT(t.AddrPort)}
		var share []nft.Statement
		if left := n - j; left > 1 {
			share = []nft.Statement{nft.RandomIsZero(uint32(left))}
		}
		rules[j] = nft.NewRule(slices.Concat([]nft.Statement{nft.In(set, client...), remember}, send)...)
		rules[n+j] = nft.NewRule(slices.Concat(share, []nft.Statement{remember}, send)...)
		rules[2*n+j] = nft.NewRule(slices.Concat(share, send)...)
	}
	return &nft.Chain{Name: prefix + name, Rules: rules}
}
