package table

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// scrubber finds what verification does not find: single rows that were deleted
// or changed. After another program committed, it reads all rows by key and the
// chains of session affinity, a few at a time.
type scrubber struct {
	// done is observed.seen at the beginning of the last complete pass,
	// began that at the beginning of the present pass.
	done, began int
	queue       []*portState // still to be checked in the present pass; nil without one
	// rows are those of plan that are still to be checked. plan is the plan of
	// the first service port of the queue.
	plan *ruleset.Plan
	rows []nft.Row
	rest time.Time // do nothing before
	// chains are the chains of session affinity that were compared.
	chains map[*portState]scrubbedChains
}

// scrubbedChains identify the rules in the affinity chains of a plan when the
// rules were last compared.
type scrubbedChains struct {
	plan *ruleset.Plan
	ids  []nft.RuleID
}

// Limits of the scrubber.
const (
	// maxScrubRows is the maximum number of rows that are read at a time.
	maxScrubRows = 64
	// scrubShare limits the CPU time of one family to 1/200 of a core.
	scrubShare = 200
	// scrubChainCost is the number of rows that take as long as an affinity
	// chain.
	scrubChainCost = 16
	// maxRowRepairs is the maximum number of rows that are repaired one by one.
	// If more of the rows read at a time are wrong, everything is written.
	maxRowRepairs = maxScrubRows / 2
)

// scrub reads some rows if another program committed since the last pass, and
// repairs those that differ. The error is a *damage if everything must be
// written.
func (t *Table) scrub() error {
	s := &t.observed.scrubber
	if (s.queue == nil && s.done == t.observed.seen) || time.Now().Before(s.rest) {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, err := threadTime()
	if err == nil && s.queue == nil {
		s.begin(t.observed.seen, t.desired.ports)
		err = t.scrubBalancers()
	}
	if err == nil {
		err = t.scrubNext()
	}
	end, errTime := threadTime()
	s.rest = time.Now().Add((end - start) * scrubShare)
	return errors.Join(err, errTime)
}

// threadTime returns the CPU time of the calling thread, which includes the
// work of the kernel for its requests. Unlike the time of day, it does not
// advance while other processes use the processor.
func threadTime() (time.Duration, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		return 0, fmt.Errorf("CPU time of the scrubber: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// begin begins a pass over all service ports.
func (s *scrubber) begin(foreign int, ports map[uint32]*portState) {
	s.began = foreign
	s.queue = slices.AppendSeq(make([]*portState, 0, len(ports)), maps.Values(ports))
	s.plan, s.rows = nil, nil
	maps.DeleteFunc(s.chains, func(p *portState, _ scrubbedChains) bool { return ports[p.tag] != p })
}

// scrubNext checks up to maxScrubRows rows, or the chains of one service port.
func (t *Table) scrubNext() error {
	s := &t.observed.scrubber
	for left := maxScrubRows; left > 0 && len(s.queue) > 0; {
		p := s.queue[0]
		plan := t.committed.plans[p]
		if plan == nil {
			s.queue = s.queue[1:]
			continue
		}
		if s.plan != plan { // a new service port, or it changed meanwhile
			s.plan, s.rows = plan, t.rules.Rows(nil, plan)
			if err := t.scrubChains(p, plan); err != nil {
				s.plan = nil
				return err
			}
			left -= len(t.rules.ChainNames(plan)) * scrubChainCost
		}
		n := min(len(s.rows), max(left, 1))
		if err := t.scrubRows(p, s.rows[:n]); err != nil {
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

// wrongRow is a row, and what the kernel has instead. found.Set is nil if the
// row was deleted.
type wrongRow struct{ want, found nft.Row }

// scrubRows checks rows of a service port and repairs those that differ.
func (t *Table) scrubRows(p *portState, rows []nft.Row) error {
	wrong, err := t.wrongRows(rows)
	if err != nil || len(wrong) == 0 {
		return err
	}
	d := &damage{damagedRow, "row " + wrong[0].want.String() + " of Service port " + p.name() + " was deleted or changed"}
	if len(wrong) > maxRowRepairs {
		return d
	}
	if err := t.verify(); err != nil { // more than single rows may be wrong
		var rows *damage
		if !errors.As(err, &rows) || rows.kind != damagedRows {
			return err
		}
	}
	t.batch.Reset()
	for _, w := range wrong {
		if w.found.Set != nil {
			t.batch.DeleteRow(w.found)
		}
		t.batch.AddRow(w.want)
	}
	return t.commitRepair(d)
}

// wrongRows returns the rows that differ from those in the kernel.
func (t *Table) wrongRows(rows []nft.Row) (wrong []wrongRow, err error) {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Set == rows[0].Set {
			n++
		}
		found, err := t.kernel.FindRows(t.committed.program, rows[:n])
		if err != nil {
			return nil, err
		}
		for i, r := range found {
			if !r.Matches(rows[i]) {
				wrong = append(wrong, wrongRow{rows[i], r})
			}
		}
		rows = rows[n:]
	}
	return wrong, nil
}

// scrubChains checks the chains of a service port with session affinity, and
// writes the chains that differ. Rules that did not change since the last pass
// are not compared again.
func (t *Table) scrubChains(p *portState, plan *ruleset.Plan) error {
	s := &t.observed.scrubber
	names := t.rules.ChainNames(plan)
	if len(names) == 0 {
		delete(s.chains, p)
		return nil
	}
	ids, err := t.ruleIDs(names)
	if err != nil {
		return err
	}
	if last := s.chains[p]; last.plan == plan && slices.Equal(last.ids, ids) {
		return nil
	}
	repaired := false
	for _, c := range t.rules.Chains(plan) {
		err := t.snapshot(func() error { return t.checkRules(damagedAffinity, c) })
		var d *damage
		switch {
		case err == nil:
			continue
		case !errors.As(err, &d):
			return err
		}
		t.batch.Reset()
		t.batch.AddChain(c)
		t.batch.FlushChain(c.Name)
		t.batch.AddRules(c)
		if err := t.commitRepair(d); err != nil {
			return err
		}
		repaired = true
	}
	if s.chains == nil {
		s.chains = make(map[*portState]scrubbedChains)
	}
	s.chains[p] = scrubbedChains{plan, ids}
	if repaired {
		delete(s.chains, p) // the chains have other rules now
	}
	return nil
}

// ruleIDs identifies the rules of chains. A zero RuleID precedes the rules of
// each chain.
func (t *Table) ruleIDs(chains []string) (ids []nft.RuleID, err error) {
	err = t.snapshot(func() error {
		ids = nil
		for _, name := range chains {
			rules, err := t.kernel.RuleIDs(t.committed.program, name)
			if err != nil {
				return err
			}
			ids = append(append(ids, nft.RuleID{}), rules...)
		}
		return nil
	})
	return ids, err
}

// scrubBalancers compares the rules of balancers if verification reads only
// some of them.
func (t *Table) scrubBalancers() error {
	if len(t.committed.balancers) <= maxVerifiedBalancers {
		return nil
	}
	return t.snapshot(func() error {
		for name := range t.committed.balancers {
			ids, err := t.kernel.RuleIDs(t.committed.program, name)
			if err != nil {
				return err
			}
			if !slices.Equal(ids, t.observed.fingerprint.rules[name]) {
				return &damage{damagedRule, "the rules of chain " + name + " were changed"}
			}
		}
		return nil
	})
}

// commitRepair commits a batch that repairs a part of the table. The error is a
// *damage, after which the caller writes everything, if the commit fails, or if
// another program committed after a repair of a moment ago.
func (t *Table) commitRepair(d *damage) error {
	now := time.Now()
	if t.observed.repairs.recent(now, t.observed.seen) {
		return d
	}
	err := t.commitExpecting()
	if errors.Is(err, nft.ErrGeneration) {
		err = t.commitGuarded() // if what verification reads is intact
	}
	var other *damage
	switch {
	case errors.As(err, &other):
		return other
	case err != nil:
		klog.InfoS("Failed to repair a part of the table; writing all of it", "table", t.name(), "err", err)
		return d
	}
	t.countRepair(d, now)
	return nil
}
