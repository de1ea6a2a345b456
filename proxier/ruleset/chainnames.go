package ruleset

import "strconv"

// Most service ports share balancers. A service port with session affinity
// (sticky.go) or with a number (number.go) has chains of its own instead: one
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
