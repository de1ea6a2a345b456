package ruleset

import "github.com/nftproxy/nftproxy/nft"

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
