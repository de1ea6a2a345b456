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

// scrubber finds what verification does not find: single rows that were deleted
// or changed. After another program committed, it compares the rows and chains
// of all service ports, a few at a time, and before them everything else.
type scrubber struct {
	audit // ports is nil between two passes
	// done is observed.seen at the beginning of the last complete pass,
	// began that at the beginning of the present pass.
	done, began int
	rest        time.Time // do nothing before
}

// Limits of the scrubber.
const (
	// maxScrubRows is the maximum number of rows that are read at a time.
	maxScrubRows = 64
	// scrubShare limits the CPU time of one family to 1/200 of a core.
	scrubShare = 200
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
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, err := threadTime()
	if err == nil && s.ports == nil {
		s.began, s.audit = t.observed.seen, audit{table: t}
		if err = t.scrubStep(s.program); err == nil {
			s.ports = slices.AppendSeq(make([]*portState, 0, len(t.desired.ports)), maps.Values(t.desired.ports))
		}
	}
	if err == nil {
		err = t.scrubPorts()
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

// scrubPorts checks up to maxScrubRows rows, or the chains of one service port.
func (t *Table) scrubPorts() error {
	s := &t.observed.scrubber
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
		var other *damage
		if !errors.As(err, &other) || other.kind != damagedRows {
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
