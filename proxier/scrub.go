package proxier

import (
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// scrubber reads all rows by key and the chains of session affinity, a few at a
// time, after another program committed. So it finds what verification does not:
// single rows that were deleted or changed.
type scrubber struct {
	// done is generation.foreign when the last complete pass began.
	done int
	// began is generation.foreign when the pass under way began.
	began int
	queue []*portState // that are left in the pass under way; nil if there is none
	// rows are those of plan, the plan of the first service port of the queue, that
	// are left.
	plan *plan
	rows []nft.Row
	rest time.Time // do nothing before
}

// Limits of the scrubber.
const (
	// scrubRows is the most rows that are read at a time.
	scrubRows = 64
	// scrubShare is the part of a core that one family may use: 0.5 %.
	scrubShare = 200
	// scrubChainCost is the number of rows that take as long as an affinity chain.
	scrubChainCost = 16
	// maxRowRepairs is the most rows that are repaired one by one; if more of those
	// read at a time are wrong, everything is written.
	maxRowRepairs = scrubRows / 2
)

// scrub reads some rows if another program committed since the last pass, and
// repairs those that differ. The error is a *damage if so much is wrong that
// everything has to be written.
func (b *Backend) scrub() error {
	s := &b.scrubber
	start := time.Now()
	if (s.queue == nil && s.done == b.generation.foreign) || start.Before(s.rest) {
		return nil
	}
	var err error
	if s.queue == nil {
		s.begin(b)
		err = b.scrubBalancers()
	}
	if err == nil {
		err = b.scrubNext()
	}
	s.rest = start.Add(time.Since(start) * scrubShare)
	return err
}

// begin starts a pass over all service ports.
func (s *scrubber) begin(b *Backend) {
	s.began = b.generation.foreign
	s.queue = make([]*portState, 0, len(b.ports))
	for _, p := range b.ports {
		s.queue = append(s.queue, p)
	}
	s.plan, s.rows = nil, nil
}

// scrubNext checks up to scrubRows rows, or the chains of one service port.
func (b *Backend) scrubNext() error {
	s := &b.scrubber
	for left := scrubRows; left > 0 && len(s.queue) > 0; {
		p := s.queue[0]
		if p.committed == nil {
			s.queue = s.queue[1:]
			continue
		}
		if s.plan != p.committed { // a new service port, or it changed meanwhile
			s.plan, s.rows = p.committed, b.render.rows(nil, p.committed)
			if err := b.scrubChains(p); err != nil {
				s.plan = nil
				return err
			}
			left -= len(b.render.chainNames(p.committed)) * scrubChainCost
		}
		n := min(len(s.rows), max(left, 1))
		if err := b.scrubRows(p, s.rows[:n]); err != nil {
			return err
		}
		if s.rows, left = s.rows[n:], left-n; len(s.rows) == 0 {
			s.queue, s.plan = s.queue[1:], nil
		}
	}
	if len(s.queue) == 0 {
		s.queue, s.done = nil, s.began
	}
	return nil
}

// scrubRows checks rows of a service port and repairs those that differ.
func (b *Backend) scrubRows(p *portState, rows []nft.Row) error {
	var wrong, found []nft.Row
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Set == rows[0].Set {
			n++
		}
		have, err := b.kernel.FindRows(b.have.table, rows[:n])
		if err != nil {
			return err
		}
		for i, r := range have {
			if !r.Matches(rows[i]) {
				wrong, found = append(wrong, rows[i]), append(found, r)
			}
		}
		rows = rows[n:]
	}
	if len(wrong) == 0 {
		return nil
	}
	d := &damage{damagedRow, "row " + wrong[0].String() + " of Service port " + p.name() + " was deleted or changed"}
	if len(wrong) > maxRowRepairs {
		return d
	}
	if err := b.verify(); err != nil { // more than single rows may be wrong
		var rows *damage
		if !errors.As(err, &rows) || rows.kind != damagedRows {
			return err
		}
	}
	b.batch.Reset()
	for i, r := range wrong {
		if found[i].Set != nil {
			b.batch.DeleteRow(found[i])
		}
		b.batch.AddRow(r)
	}
	return b.commitRepair(d)
}

// scrubChains checks the chains of a service port with session affinity and
// writes those that differ. Chains whose rules are those of the last pass are not
// compared again.
func (b *Backend) scrubChains(p *portState) error {
	chains := b.render.chainNames(p.committed)
	if len(chains) == 0 {
		p.scrubbed = scrubbedChains{}
		return nil
	}
	var handles []uint64
	_, err := b.kernel.Snapshot(func() error {
		handles = nil
		for _, name := range chains {
			rules, err := b.kernel.RuleHandles(b.have.table, name)
			if err != nil {
				return err
			}
			handles = append(append(handles, 0), rules...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if p.scrubbed.plan == p.committed && slices.Equal(p.scrubbed.handles, handles) {
		return nil
	}
	repaired := false
	for _, c := range b.render.chains(p.committed) {
		err := b.checkRules(damagedAffinity, c)
		var d *damage
		switch {
		case err == nil:
			continue
		case !errors.As(err, &d):
			return err
		}
		b.batch.Reset()
		b.batch.AddChain(c)
		b.batch.FlushChain(c.Name)
		b.batch.AddRules(c)
		if err := b.commitRepair(d); err != nil {
			return err
		}
		repaired = true
	}
	p.scrubbed = scrubbedChains{p.committed, handles}
	if repaired {
		p.scrubbed = scrubbedChains{} // the handles are others by now
	}
	return nil
}

// scrubbedChains are the handles of the rules in the affinity chains of a plan
// when their contents were last compared.
type scrubbedChains struct {
	plan    *plan
	handles []uint64
}

// scrubBalancers compares the rules of balancers, of which verification reads some
// only.
func (b *Backend) scrubBalancers() error {
	if len(b.have.balancers) <= maxVerifiedBalancers {
		return nil
	}
	for name := range b.have.balancers {
		handles, err := b.kernel.RuleHandles(b.have.table, name)
		if err != nil {
			return err
		}
		if !slices.Equal(handles, b.fingerprint.rules[name]) {
			return &damage{damagedRule, "the rules of chain " + name + " were changed"}
		}
	}
	return nil
}

// commitRepair commits a batch that repairs a part of the table. If that fails, or
// another program committed after a repair of a moment ago, the error is a *damage
// that makes the caller write everything.
func (b *Backend) commitRepair(d *damage) error {
	now := time.Now()
	if b.repairs.recent(now, b.generation.foreign) {
		return d
	}
	err := b.commitExpecting()
	if errors.Is(err, nft.ErrGeneration) {
		err = b.commitGuarded() // if what verification reads is intact
	}
	var other *damage
	switch {
	case errors.As(err, &other):
		return other
	case err != nil:
		klog.InfoS("Failed to repair a part of the table; writing all of it", "table", b.tableName(), "err", err)
		return d
	}
	b.countRepair(d, now)
	return nil
}
