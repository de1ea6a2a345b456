package proxier

import (
	"strconv"

	"github.com/nftproxy/nftproxy/nft"
)

// Session affinity is the one feature that needs chains of its own: only an endpoint's chain can write that
// endpoint's id into @affinity, so a service port with affinity has a chain for itself and one for each of its
// endpoints.

// Names of the chains of a service port with affinity begin with these; namespace/name/protocol/port follows.
const (
	affinityPrefix         = "affinity/"          // any endpoint
	affinityLocalPrefix    = "affinity-local/"    // endpoints of this node
	affinityExternalPrefix = "affinity-external/" // any endpoint, masqueraded
	affinityEndpointPrefix = "affinity-endpoint-" // an endpoint's id follows
)

func (p *plan) affinityChain(prefix string) string {
	name := p.service.Name
	return prefix + name.Namespace + "/" + name.Name + "/" + p.port.Protocol.String() + "/" + p.port.Name
}

func affinityEndpointChain(id uint32) string {
	return affinityEndpointPrefix + strconv.FormatUint(uint64(id), 10)
}

// chains returns the chains that a service port needs for itself: none without session affinity.
func (r *renderer) chains(p *plan) []*nft.Chain {
	if p == nil || p.affinity() == 0 || len(p.frontends) == 0 {
		return nil
	}
	use := p.chainsInUse()
	var chains []*nft.Chain
	if use.external {
		chains = append(chains, r.affinityExternal(p))
	}
	if use.cluster {
		chains = append(chains, r.affinityChain(p.affinityChain(affinityPrefix), p.cluster, p.clusterBase))
	}
	if use.local {
		chains = append(chains, r.affinityChain(p.affinityChain(affinityLocalPrefix), p.local, p.localBase))
	}
	for _, t := range distinct(p.cluster, p.local, use) {
		chains = append(chains, r.affinityEndpoint(p, t))
	}
	return chains
}

// affinityUse says which of the chains of a service port with affinity its frontends lead to.
type affinityUse struct{ cluster, local, external bool }

func (p *plan) chainsInUse() affinityUse {
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

// distinct returns the targets of both lists that are in use, each once.
func distinct(cluster, local []target, use affinityUse) []target {
	var out []target
	seen := make(map[uint32]bool)
	add := func(ts []target) {
		for _, t := range ts {
			if !seen[t.id] {
				seen[t.id] = true
				out = append(out, t)
			}
		}
	}
	if use.cluster {
		add(cluster)
	}
	if use.local {
		add(local)
	}
	return out
}

// affinityExternal marks traffic for masquerading before its endpoint is chosen:
//
//	meta mark set meta mark | 0x00004000 goto affinity/default/sticky/tcp/http
func (r *renderer) affinityExternal(p *plan) *nft.Chain {
	return &nft.Chain{Name: p.affinityChain(affinityExternalPrefix), Rules: []nft.Rule{
		nft.NewRule(nft.SetMarkBits(r.mark), nft.Goto(p.affinityChain(affinityPrefix))),
	}}
}

// affinityChain leads a client to the endpoint that it had, or else to any:
//
//	ip saddr . numgen inc mod 1 offset 4096 @affinity goto affinity-endpoint-4096
//	ip saddr . numgen inc mod 1 offset 4097 @affinity goto affinity-endpoint-4097
//	numgen random mod 2 offset 4096 vmap @affinity-endpoints
func (r *renderer) affinityChain(name string, targets []target, base uint32) *nft.Chain {
	l := r.layout
	c := &nft.Chain{Name: name}
	for _, t := range targets {
		c.Rules = append(c.Rules, nft.NewRule(
			nft.In(l.affinity, nft.Saddr(l.family), nft.Constant(t.id)),
			nft.Goto(affinityEndpointChain(t.id))))
	}
	c.Rules = append(c.Rules, nft.NewRule(nft.VMap(l.affinityEndpoints, nft.Random(uint32(len(targets)), base))))
	return c
}

// affinityEndpoint remembers the client and leads it to the endpoint. When @affinity is full, the first rule ends and the
// second still does its work.
//
//	update @affinity { ip saddr . numgen inc mod 1 offset 4096 timeout 3h }
//	meta l4proto tcp dnat to 10.244.1.8:8080
func (r *renderer) affinityEndpoint(p *plan, t target) *nft.Chain {
	l := r.layout
	return &nft.Chain{Name: affinityEndpointChain(t.id), Rules: []nft.Rule{
		nft.NewRule(nft.Update(l.affinity, p.affinity(), nft.Saddr(l.family), nft.Constant(t.id))),
		nft.NewRule(nft.MatchL4Proto(uint8(p.port.Protocol)), nft.DNAT(t.AddrPort)),
	}}
}

// affinityRows returns the indexes under which affinityChain finds the endpoints.
func (r *renderer) affinityRows(rows []nft.Row, p *plan) []nft.Row {
	use := p.chainsInUse()
	add := func(targets []target, base uint32) {
		for i, t := range targets {
			rows = append(rows, nft.Row{
				Set: r.layout.affinityEndpoints, Key: nft.Tuple{}.Integer(base + uint32(i)),
				Verdict: nft.VerdictGoto(affinityEndpointChain(t.id)),
			})
		}
	}
	if use.cluster {
		add(p.cluster, p.clusterBase)
	}
	if use.local {
		add(p.local, p.localBase)
	}
	return rows
}
