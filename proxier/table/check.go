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
)

// damage is a change to our table by another program. It is an error.
type damage struct {
	kind DamageKind
	what string // a sentence without a period: "set service-ips was deleted"
}

// DamageKind is the kind of object that another program changed. It is a label
// of metrics.
type DamageKind string

// The kinds of damage.
const (
	damagedTable    DamageKind = "table"    // deleted or replaced
	damagedSet      DamageKind = "set"      // deleted or replaced
	damagedCounter  DamageKind = "counter"  // deleted or replaced
	damagedChain    DamageKind = "chain"    // base chain deleted, replaced or changed
	damagedRule     DamageKind = "rule"     // rules added, deleted or replaced
	damagedRows     DamageKind = "rows"     // set flushed, or rows added or deleted
	damagedRow      DamageKind = "row"      // single rows deleted or changed, found by the scrubber
	damagedAffinity DamageKind = "affinity" // chain of a service port with session affinity changed
)

// DamageKinds returns all kinds of damage.
func DamageKinds() []DamageKind {
	return []DamageKind{
		damagedTable, damagedSet, damagedCounter, damagedChain, damagedRule, damagedRows, damagedRow, damagedAffinity,
	}
}

// Error describes what another program changed.
func (d *damage) Error() string { return "another program changed the table: " + d.what }

// A repair begins at once, unless another program keeps changing the table: two
// proxies must not fight for the same table without pause. From the second
// repair within calmTime on, the next repair waits, each time longer.
const (
	calmTime   = 5 * time.Second
	firstPause = 250 * time.Millisecond
	lastPause  = 10 * time.Second
)

// repairs determines when the table may be repaired, and counts repairs.
type repairs struct {
	last    time.Time
	foreign int           // observed.seen at the last repair
	pause   time.Duration // after the last repair
	count   map[DamageKind]int
}

// wait returns how long to wait before the next repair.
func (r *repairs) wait(now time.Time) time.Duration { return max(0, r.pause-now.Sub(r.last)) }

// recent reports whether the last repair was a moment ago, and another program
// committed after it.
func (r *repairs) recent(now time.Time, foreign int) bool {
	return !r.last.IsZero() && now.Sub(r.last) < calmTime+r.pause && foreign != r.foreign
}

// add counts a repair that begins now. It reports whether another program
// changes the table repeatedly.
func (r *repairs) add(kind DamageKind, now time.Time, foreign int) (again bool) {
	again = r.recent(now, foreign)
	if again {
		r.pause = min(max(2*r.pause, firstPause), lastPause)
	} else {
		r.pause = 0
	}
	r.last, r.foreign = now, foreign
	r.count[kind]++
	return again
}

// Check verifies the table if another program committed since the last
// verification, and repairs it if necessary. While no other program commits, it
// costs one small request. After such commits, it also scrubs a few rows.
func (t *Table) Check() error {
	if t.inDoubt != "" || t.observed.repairs.wait(time.Now()) > 0 {
		return nil // the next sync writes everything, or a repair has to wait
	}
	err := t.observed.read(t.kernel.Generation)
	if err != nil {
		return err
	}
	var used time.Duration
	if !t.observed.isVerified() {
		used, err = threadTimeOf(t.verify)
	}
	t.observed.scrubber.verified += used
	t.observed.rest = min(used*verifyShare, longestRest)
	if err == nil {
		err = t.scrub()
	}
	d, ok := errors.AsType[*damage](err)
	if !ok {
		return err
	}
	return t.timed(d.Error(), func() error { return t.repaired(err) })
}

// Rest returns how long to wait before the next Check. It is 0 unless the last
// one verified the table.
func (t *Table) Rest() time.Duration { return t.observed.rest }

// repaired writes everything if err is a *damage. It returns all other errors.
func (t *Table) repaired(err error) error {
	d, ok := errors.AsType[*damage](err)
	if !ok {
		return err
	}
	now := time.Now()
	if wait := t.observed.repairs.wait(now); wait > 0 {
		return fmt.Errorf("%w; the next repair of table %s is in %v", err, t.name(), wait.Round(time.Millisecond))
	}
	t.countRepair(d, now)
	t.doubt(rewriteDamage, d.Error())
	return t.rewrite()
}

// countRepair logs and counts a repair.
func (t *Table) countRepair(d *damage, now time.Time) {
	o := &t.observed
	again := o.repairs.add(d.kind, now, o.seen)
	klog.InfoS("Repairing the table", "table", t.name(), "kind", d.kind, "reason", d.Error())
	if again {
		klog.InfoS("Another program keeps changing the table; is a second service proxy running on this node?",
			"table", t.name(), "nextRepairAfter", o.repairs.pause)
		o.monitor.nameOthers(&o.generation.ports)
	}
}

// scrubber finds what verification does not find: single rows that were deleted
// or changed. After another program committed, it compares the rows and chains
// of all service ports, a few at a time, and before them everything else.
type scrubber struct {
	audit // ports is nil between two passes
	// done is observed.seen at the beginning of the last complete pass,
	// began that at the beginning of the present pass.
	done, began int
	rest        time.Time     // do nothing before
	verified    time.Duration // CPU time of verifications since the last step
}

// Limits of verifications and of the scrubber.
const (
	// maxScrubRows is the maximum number of rows that are read at a time.
	maxScrubRows = 64
	// verifyShare limits the CPU time of verifications, for one family, to
	// 1/400 of a core, unless that takes longer rests than longestRest.
	verifyShare = 400
	longestRest = 300 * time.Millisecond
	// checkShare limits the CPU time of verifications and of the scrubber, for
	// one family, to 1/250 of a core. While verifications take more, the
	// scrubber has 1/1000.
	checkShare, scrubShare = 250, 1000
	// maxRowRepairs is the maximum number of rows that are repaired one by one.
	// If more of the rows read at a time are wrong, everything is written.
	maxRowRepairs = maxScrubRows / 2
)

// scrub reads some rows if another program committed since the last pass, and
// repairs those that differ. The error is a *damage if everything must be
// written.
func (t *Table) scrub() error {
	s := &t.observed.scrubber
	if (s.ports == nil && s.done == t.observed.seen) || time.Now().Before(s.rest) {
		return nil
	}
	used, err := threadTimeOf(t.scrubSome)
	s.rest = time.Now().Add(s.pause(used))
	s.verified = 0
	return err
}

// pause returns the rest after a step that used CPU time.
func (s *scrubber) pause(used time.Duration) time.Duration {
	return min((s.verified+used)*checkShare, used*scrubShare)
}

// scrubSome begins a pass if there is none, and continues it: with up to
// maxScrubRows rows, or the chains of one service port.
func (t *Table) scrubSome() error {
	s := &t.observed.scrubber
	if s.ports == nil {
		s.began, s.audit = t.observed.seen, audit{table: t}
		if err := t.scrubStep(s.program); err != nil {
			return err
		}
		s.ports = slices.AppendSeq(make([]*portState, 0, len(t.desired.ports)), maps.Values(t.desired.ports))
	}
	for s.left = maxScrubRows; s.left > 0 && len(s.ports) > 0; {
		if err := t.scrubStep(s.port); err != nil {
			return err
		}
	}
	if len(s.ports) == 0 {
		s.ports, s.done = nil, s.began
	}
	return nil
}

// threadTimeOf calls f and returns its CPU time.
func threadTimeOf(f func() error) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, err := threadTime()
	if err == nil {
		err = f()
	}
	end, errTime := threadTime()
	return end - start, errors.Join(err, errTime)
}

// threadTime returns the CPU time of the calling thread, which includes the
// work of the kernel for its requests. Unlike the time of day, it does not
// advance while other processes use the processor. Unlike getrusage, the clock
// is exact while the thread runs.
func threadTime() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		return 0, fmt.Errorf("CPU time of a check: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// scrubStep repairs what a step of the audit finds. After an error, the step is
// repeated.
func (t *Table) scrubStep(step func() error) error {
	s := &t.observed.scrubber
	before := s.audit
	s.found = nil
	err := t.observed.generation.exclude(step)
	if err == nil && len(s.found) > 0 {
		err = t.repairParts(s.found)
	}
	if err != nil {
		s.audit = before
	}
	return err
}

// repairParts repairs the rows and chains of a service port. The error is a
// *damage if everything must be written.
func (t *Table) repairParts(found []Difference) error {
	first := &found[0].damage
	var chains []*nft.Chain
	var rows []Difference
	for _, d := range found {
		switch d.damage.kind {
		case damagedAffinity:
			chains = append(chains, d.chain)
		case damagedRow:
			rows = append(rows, d)
		default:
			return first
		}
	}
	if len(rows) > maxRowRepairs {
		return first
	}
	if err := t.verify(); err != nil { // more than these parts may be wrong
		if other, ok := errors.AsType[*damage](err); !ok || other.kind != damagedRows {
			return err
		}
	}
	t.batch.Reset()
	(&transaction{to: t.batch}).writeChains(slices.Compact(chains)...)
	for _, d := range rows {
		if d.has.Set != nil {
			t.batch.DeleteRow(d.has)
		}
		t.batch.AddRow(d.want)
	}
	return t.commitRepair(first)
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
