package ruleset

import (
	"cmp"

	"github.com/nftproxy/nftproxy/nft"
)

// A target that a balancer draws is looked up by frontend and index, so a
// service port has a row for each pair of frontend and target. A user can
// create Services with millions of pairs. Therefore a service port with many
// frontends and targets has a number, and chains that draw a number and index:
// it has a row for each frontend and one for each target.

// NumberBits is the size of a number's range of rows, in bits. A class has a
// number above them, and the index of a row in them. A service port with more
// rows has several numbers in a row. So a node has a million numbers.
const NumberBits = 12

// DefaultNumberLimit is the default of Config.NumberLimit.
const DefaultNumberLimit = 4096

// saved returns the number of rows that a number saves.
func (p *Plan) saved() int {
	if p.HasAffinity() {
		return 0
	}
	use := p.use()
	return max(use[toAll]+use[toAllMasqueraded]-1, 0)*p.rowsOf(toAll) + max(use[toLocal]-1, 0)*p.rowsOf(toLocal)
}

// setNumber gives a plan a number if that saves more rows than the limit. A
// plan that replaces one with a number keeps it until it saves less than half
// of that, so that a change of one target rarely changes all rows.
func (r *Ruleset) setNumber(p, before *Plan, number func(rows int) Number) {
	limit := cmp.Or(r.config.NumberLimit, DefaultNumberLimit)
	if before.Number.First != 0 {
		limit /= 2
	}
	if p.saved() <= limit {
		return
	}
	if rows := max(p.rowsOf(toAll), p.rowsOf(toLocal)); before.Number.Fits(rows) {
		p.Number = before.Number
	} else {
		p.Number = number(rows)
	}
}

// Number is a range of numbers for the rows of a service port. The zero Number
// is none.
type Number struct {
	First, Count uint32
}

// NumbersFor returns the count of numbers that a service port with so many rows
// in its longer list needs.
func NumbersFor(rows int) uint32 {
	count := uint32(1)
	for !(Number{1, count}).Fits(rows) {
		count *= 2
	}
	return count
}

// Fits reports whether the number has room for two lists of so many rows.
func (n Number) Fits(rows int) bool { return n.First != 0 && uint32(rows)+firstIndex <= n.half() }

func (n Number) half() uint32 { return n.Count << (NumberBits - 1) }

// index returns the index of the first target of a kind of chain.
func (n Number) index(k chainKind) uint32 {
	if k == toLocal {
		return n.First<<NumberBits + n.half() + firstIndex
	}
	return n.First<<NumberBits + firstIndex
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

// numberChain draws one of the targets of a service port with a number. For
// port-7 it is
//
//	meta priority set numgen random mod 500 offset 28673 goto pick-port
//
// `port-local-7` draws with the offset 30721. See draw for service ports with a
// table.
func (r *Ruleset) numberChain(p *Plan, kind chainKind) *nft.Chain {
	index := p.draw(kind).index(r.layout.family, p.rowsOf(kind), p.Number.index(kind))
	return &nft.Chain{Name: p.chainName(kind), Rules: []nft.Rule{
		nft.NewRule(nft.SetPriority(index), nft.Goto(chainPickPort)),
	}}
}

// numbered appends the rows of the targets of a service port with a number.
func (r *Ruleset) numbered(rows []nft.Row, p *Plan) []nft.Row {
	if p.Number.First == 0 {
		return rows
	}
	for _, kind := range p.chainKinds() {
		if kind == toAllMasqueraded {
			continue
		}
		first := p.Number.index(kind)
		for i, t := range p.indexed(kind) {
			rows = append(rows, nft.Row{
				Set: r.layout.portTargets, Key: nft.Tuple{}.Integer(first + uint32(i)), Data: t.data(),
			})
		}
	}
	return rows
}

// NumberOf returns the number of the service port that has the row of a set
// with this key, 0 if the rows of the set do not belong to numbers.
func (r *Ruleset) NumberOf(set *nft.Set, key nft.Tuple) uint32 {
	if set != r.layout.portTargets {
		return 0
	}
	return key.FirstInteger() >> NumberBits
}
