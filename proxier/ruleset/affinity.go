package ruleset

import (
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

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

// HasAffinity reports whether the service port has session affinity.
func (p *Plan) HasAffinity() bool { return p != nil && p.affinity() != 0 }

// AffinityName returns the name of the service port in the names of chains.
func (p *Plan) AffinityName() string {
	name := p.Service.Name.Namespace + "." + p.Service.Name.Name + "." + p.Port.Protocol.String()
	if p.Port.Name == "" {
		return name
	}
	return name + "." + p.Port.Name
}

// AffinitySet returns the set that the chains of a service port use, nil if the
// service port has no chains.
func (r *Ruleset) AffinitySet(p *Plan) *nft.Set {
	if !p.HasAffinity() || len(p.chainKinds()) == 0 {
		return nil
	}
	return r.layout.affinity[p.ClientSet]
}

// ParseStickyChain returns the AffinityName of the service port that a chain
// with rules for known clients belongs to. ok reports whether the chain is one.
func ParseStickyChain(chain string) (servicePort string, ok bool) {
	prefix, name, _ := strings.Cut(chain, ".")
	switch prefix + "." {
	case affinityPrefixes[toAll], affinityPrefixes[toLocal]:
		return name, true
	case knownPrefixes[toAll], knownPrefixes[toLocal]:
		_, name, ok = strings.Cut(name, ".") // after the number of the group
		return name, ok
	}
	return "", false
}

// StickyRule is a rule that reads or writes an affinity set and sends the
// client to an endpoint.
type StickyRule struct {
	Endpoint  netip.AddrPort
	ID, Group uint32 // of the endpoint (see Target)
	ClientSet uint8
}

// ParseStickyRule returns the StickyRule that a rule is, of this version or of
// an earlier one. ok reports whether it is one.
func ParseStickyRule(rule nft.Rule) (sticky StickyRule, ok bool) {
	numbers := rule.Priorities()
	set, ok := clientSetOf(affinitySetPrefix, rule.Set())
	if !ok {
		numbers = rule.Constants()
		set, ok = clientSetOf(earlierSetPrefix, rule.Set())
	}
	sticky = StickyRule{Endpoint: rule.DNAT(), ClientSet: set}
	for _, n := range numbers { // the last one is the id, and another one the group
		if sticky.ID != n {
			sticky.ID, sticky.Group = n, sticky.ID
		}
	}
	return sticky, ok && sticky.Endpoint.IsValid() && sticky.ID != 0
}
