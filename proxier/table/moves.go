package table

import (
	"slices"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// A frontend moves when its owner changes: the kernel has rows of it for the
// service port that owned it before, its holder. One transaction deletes them
// and adds those of the owner (see source.Together). If both were in the
// kernel, even for a moment, the second ones would be refused, or be lost with
// the first ones: the kernel accepts an equal row. So the owner waits while its
// holder stays the same, because a change of it failed.

// hold records the frontends for which the kernel has rows of a service port,
// and which it does not own.
func (d *desired) hold(p *portState) {
	for _, f := range p.moving {
		if d.holders[f] == p {
			delete(d.holders, f)
		}
	}
	p.moving = nil
	for _, c := range []keep.Content{p.kept.Have(), p.kept.Unfinished()} {
		plan := planOf(c)
		if plan == nil {
			continue
		}
		for _, f := range plan.Frontends {
			if d.claims.owner(f.Frontend) != p {
				d.holders[f.Frontend], p.moving = p, append(p.moving, f.Frontend)
			}
		}
	}
	if len(d.holders) == 0 { // an emptied map keeps its size
		d.holders = make(map[ruleset.Frontend]*portState)
	}
}

// owned returns the frontends that a service port owns, without those whose
// holder keeps them.
func (d *desired) owned(p *portState) []ruleset.ServedFrontend {
	owns := func(f ruleset.ServedFrontend) bool {
		by := d.holders[f.Frontend]
		return d.claims.owner(f.Frontend) == p && (by == nil || by == p || !by.kept.StaysSame())
	}
	i := slices.IndexFunc(p.wants, func(f ruleset.ServedFrontend) bool { return !owns(f) })
	if i < 0 {
		return p.wants
	}
	out := slices.Clone(p.wants[:i])
	for _, f := range p.wants[i+1:] {
		if owns(f) {
			out = append(out, f)
		}
	}
	return out
}

// Together implements keep.Source.
func (s source) Together(o keep.Owner, join func(other keep.Owner, takes bool)) {
	d, p := &s.t.desired, o.(*portState)
	if len(d.holders) == 0 {
		return
	}
	for _, w := range p.wants {
		// A service port can own a frontend again that it lost a moment ago.
		if by := d.holders[w.Frontend]; by != nil && by != p && d.claims.owner(w.Frontend) == p {
			join(by, true)
		}
	}
	for _, f := range p.moving {
		if owner := d.claims.owner(f); owner != nil && owner != p {
			join(owner, false)
		}
	}
}
