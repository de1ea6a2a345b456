package keep

import (
	"slices"
	"time"
)

// scrubber finds what verification does not find: single rows that were deleted
// or changed. After another program committed, it compares the rows and chains
// of all owners, a few at a time, and before them everything else.
type scrubber struct {
	audit // owners is nil between two passes
	// began is link.seen at the beginning of the present pass.
	began   int
	rest    time.Time     // do nothing before
	checked time.Duration // CPU time of verifications since the last step
}

// Limits of verifications and of the scrubber.
const (
	// maxScrubRows is the maximum number of rows that are read at a time.
	maxScrubRows = 2 * maxRowRepairs
	// verifyShare limits the CPU time of verifications, for one family, to
	// 1/400 of a core, unless that takes longer rests than longestRest.
	verifyShare = 400
	longestRest = 300 * time.Millisecond
)

// scrub reads some rows if another program committed since the last pass, and
// repairs those that differ. The error is a *Damage if everything must be
// written.
func (s *scrubber) scrub(k *writer) error {
	if s.isDone() || time.Now().Before(s.rest) {
		return nil
	}
	used, err := ThreadTimeOf(func() error { return s.scrubSome(k) })
	s.rest = time.Now().Add(s.pause(used, k.limits))
	s.checked = 0
	return err
}

// isDone reports whether everything was compared, or written, since another
// program last committed.
func (s *scrubber) isDone() bool { return s.owners == nil && s.scrubbed == s.seen }

// pause returns the rest after a step that used CPU time.
func (s *scrubber) pause(used time.Duration, l *Limits) time.Duration {
	return min((s.checked+used)*l.CheckShare, used*l.ScrubShare)
}

// scrubSome begins a pass if there is none, and continues it: with up to
// maxScrubRows rows, or the chains of one owner.
func (s *scrubber) scrubSome(k *writer) error {
	if s.owners == nil {
		s.began, s.audit = k.seen, audit{state: &k.state}
		if err := s.step(k, s.program); err != nil {
			return err
		}
		s.owners = slices.Collect(k.source.Owners(false))
	}
	for s.left = maxScrubRows; s.left > 0 && len(s.owners) > 0; {
		if err := s.step(k, s.owner); err != nil {
			return err
		}
	}
	if len(s.owners) == 0 {
		s.owners, s.scrubbed = nil, s.began
	}
	return nil
}

// step repairs what a step of the audit finds. After an error, the step is
// repeated.
func (s *scrubber) step(k *writer, step func() error) error {
	before := s.audit
	s.found = nil
	err := k.generation.exclude(step)
	if err == nil && len(s.found) > 0 {
		err = k.repairSome(s.found)
	}
	if err != nil {
		s.audit = before
	}
	return err
}
