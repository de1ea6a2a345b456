package ruleset

import (
	"cmp"

	"github.com/nftproxy/nftproxy/nft"
)

// A balancer looks targets up by frontend and index, so a service port has a
// row for each pair of frontend and target. A user can create Services with
// millions of pairs. Therefore a service port with many frontends and targets
// has a number, and chains that look targets up by number and index: it has a
// row for each frontend and one for each target.

// localIndex is the index of the first endpoint of this node in the rows of a
// service port with a number. The usable endpoints of all nodes have smaller
// indexes.
const localIndex = 1 << 24

// DefaultNumberLimit is the default of Config.NumberLimit.
const DefaultNumberLimit = 4096

// numberFor returns the number of a plan: 0, or the given one if it saves more
// rows than the limit. A plan that replaces one with a number keeps it until it
// saves less than half of that, so that a change of one target rarely changes
// all rows.
func (r *Ruleset) numberFor(p, before *Plan, number uint32) uint32 {
	limit := cmp.Or(r.config.NumberLimit, DefaultNumberLimit)
	if before.Number != 0 {
		limit /= 2
	}
	use := p.use()
	saved := max(use[toAll]+use[toAllMasqueraded]-1, 0)*p.rowsOf(toAll) + max(use[toLocal]-1, 0)*p.rowsOf(toLocal)
	if p.HasAffinity() || saved <= limit {
		return 0
	}
	return number
}

// Cost returns the number of rows that take as long to write as the rows and
// chains of a plan with this number of targets, approximately and at most.
// weights reports whether they have weights.
func (p *Plan) Cost(targets int, weights bool) int {
	const dispatchRows, stickyRules, rowsPerRule = 4, 3, 3
	cost := len(p.Frontends) * dispatchRows
	for _, f := range p.Frontends {
		if f.Kind == LoadBalancerIP && !f.IsNodePort() {
			cost += len(p.Sources)
		}
	}
	if p.HasAffinity() {
		return cost + targets*stickyRules*rowsPerRule
	}
	if targets > 0 && hasTable(p.Service, weights) {
		const lists = 2
		targets = lists * tableRows(targets, p.TableSize)
	}
	return cost + min(len(p.Frontends)*targets, DefaultNumberLimit+targets)
}

// Prefixes of the names of the chains of numbered service ports. The number
// follows.
const (
	portPrefix         = "port-"          // all usable endpoints
	portLocalPrefix    = "port-local-"    // endpoints of this node
	portExternalPrefix = "port-external-" // all usable endpoints, masqueraded
)

// numberChain selects one of the targets of a service port with a number. For
// port-7 it is
//
//	meta l4proto tcp dnat ip to numgen inc mod 1 offset 7 . numgen random mod 500 map @port-endpoints
//
// `port-local-7` has `numgen random mod 2 offset 16777216` there. See draw for
// service ports with a table.
func (r *Ruleset) numberChain(p *Plan, kind chainKind) *nft.Chain {
	index := p.draw(kind).index(r.layout.family, p.rowsOf(kind), indexOffset(kind))
	return &nft.Chain{Name: p.chainName(kind), Rules: []nft.Rule{
		nft.NewRule(nft.MatchL4Proto(uint8(p.Port.Protocol)),
			nft.DNATMap(r.layout.family, r.layout.portEndpoints, nft.Constant(p.Number), index)),
	}}
}

// indexOffset returns the index of the first target of a kind of chain.
func indexOffset(k chainKind) uint32 {
	if k == toLocal {
		return localIndex
	}
	return 0
}

// numbered appends the rows of the targets of a service port with a number.
func (r *Ruleset) numbered(rows []nft.Row, p *Plan) []nft.Row {
	if p.Number == 0 {
		return rows
	}
	for _, kind := range p.chainKinds() {
		if kind == toAllMasqueraded {
			continue
		}
		for i, t := range p.indexed(kind) {
			rows = append(rows, nft.Row{
				Set:  r.layout.portEndpoints,
				Key:  nft.Tuple{}.Integer(p.Number).Integer(indexOffset(kind) + uint32(i)),
				Data: nft.Tuple{}.Addr(t.Addr).Port(t.Port),
			})
		}
	}
	return rows
}

// NumberOf returns the number of the service port that has the row of a set
// with this key, 0 if the rows of the set do not belong to numbers.
func (r *Ruleset) NumberOf(set *nft.Set, key nft.Tuple) uint32 {
	if set != r.layout.portEndpoints {
		return 0
	}
	return key.FirstInteger()
}
