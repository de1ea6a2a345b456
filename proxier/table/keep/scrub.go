package keep

import (
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// scrubber compares everything with what was committed, in passes of short
// steps, each in one generation, and repairs what differs. A pass has one of
// two purposes:
//
//   - After another program committed, it finds what verification does not find:
//     single rows that were deleted or changed. It rests after each step.
//   - After verification found damage, it repairs the rows of the damaged sets,
//     with larger steps and without rests.
type scrubber struct {
	audit // owners is nil between two passes
	// began is link.seen at the beginning of the present pass.
	began   int
	rest    time.Time     // do nothing before
	checked time.Duration // CPU time of verifications since the last step
	// size is the number of rows of the last step. While other programs commit
	// all the time, only small steps succeed.
	size int
}

// Limits of verifications and of the scrubber.
const (
	// maxScrubRows is the maximum number of rows that are read at a time,
	// maxRepairRows that in a repair: about 20 ms.
	maxScrubRows  = 64
	maxRepairRows = 4096
	// maxListedRows is the number of rows of a set up to which extra rows are
	// found. The kernel takes quadratic time to list a set: 0.4 s for 100,000.
	maxListedRows = 1 << 16
	// verifyShare limits the CPU time of verifications, for one family, to
	// 1/400 of a core, unless that takes longer rests than longestRest.
	verifyShare = 400
	longestRest = 300 * time.Millisecond
)

// scrub makes a step of a pass, if one is due. The error is a *Damage if only
// the structure shows how to repair it.
func (s *scrubber) scrub(k *Keeper) error {
	now, repairs := time.Now(), s.audit.state.damaged != nil
	if s.isDone() || repairs && !s.isRepairing(&k.repairs) || !repairs && now.Before(s.rest) {
		return nil
	}
	used, err := ThreadTimeOf(func() error { return s.scrubSome(k) })
	if repairs {
		k.rewriting += used
		k.repairs.chargeRows(used, time.Now(), k.limits)
		return err
	}
	s.rest = time.Now().Add(s.pause(used, k.limits))
	s.checked = 0
	return err
}

// isDone reports whether everything was compared, or written, since another
// program last committed.
func (s *scrubber) isDone() bool {
	return s.owners == nil && s.audit.state.damaged == nil && s.audit.state.scrubbed == s.audit.state.link.seen
}

// isRepairing reports whether a repair of rows is under way, and does not have
// to wait before it begins.
func (s *scrubber) isRepairing(r *repairs) bool {
	return s.audit.state.damaged != nil && (s.owners != nil || r.waitRows(time.Now()) == 0)
}

// restart makes the next step begin a pass.
func (s *scrubber) restart() { s.audit, s.size = audit{state: s.state}, 0 }

// pause returns the rest after a step that used CPU time.
func (s *scrubber) pause(used time.Duration, l *Limits) time.Duration {
	return min((s.checked+used)*l.CheckShare, used*l.ScrubShare)
}

// scrubSome begins a pass if there is none, and continues it.
func (s *scrubber) scrubSome(k *Keeper) error {
	if s.owners == nil {
		s.began, s.audit = k.link.seen, audit{state: k.state, only: k.state.damaged}
		if err := s.step(k, s.begin); err != nil {
			return err
		}
		s.owners = slices.AppendSeq(make([]Owner, 0, 1), k.source.Owners(false))
	}
	if err := s.step(k, s.some); err != nil || len(s.owners) > 0 {
		return err
	}
	if s.audit.state.damaged != nil {
		if err := s.step(k, s.extraRows); err != nil {
			return err
		}
		k.state.damaged, k.state.verified = nil, -1 // the next Check verifies everything
	} else {
		s.audit.state.scrubbed = s.began
	}
	s.owners = nil
	return nil
}

// begin compares what no owner has.
func (s *scrubber) begin() error {
	if s.only != nil {
		return s.compareRows("", s.only.rows(s.audit.state.have.ownRows(s.audit.state.source)))
	}
	return s.program()
}

// some compares the next owners, as many as the step may.
func (s *scrubber) some() error {
	for s.left > 0 && len(s.owners) > 0 {
		if err := s.owner(); err != nil {
			return err
		}
	}
	return nil
}

// step makes a step of the pass.
func (s *scrubber) step(k *Keeper, compare func() error) error {
	most := maxScrubRows
	if s.audit.state.damaged != nil {
		most = maxRepairRows
	}
	if s.size = min(2*s.size, most); s.size == 0 {
		s.size = most
	}
	_, err := k.repairDifferences(&s.audit, &s.size, compare)
	return err
}

// extraRows finds rows of damaged sets that were not committed, if the kernel
// has more rows than it should have. Those of a large set stay: nothing leads
// to them, and an owner that needs such a key replaces the row.
func (s *scrubber) extraRows() error {
	sets, err := s.audit.state.link.kernel.Sets(s.audit.state.have.program)
	if err != nil {
		return err
	}
	for set := range s.audit.state.damaged.sets {
		i := slices.IndexFunc(sets, func(f nft.FoundSet) bool { return f.Name == set.Name })
		if i < 0 || sets[i].Count <= s.audit.state.have.counts[set] {
			continue
		}
		if extra := sets[i].Count - s.audit.state.have.counts[set]; sets[i].Count > maxListedRows {
			s.audit.state.have.extra[set] = extra
			klog.InfoS("Another program added rows to a large set; they stay until a rewrite",
				"table", s.audit.state.link.name(), "set", set.Name, "rows", extra)
			continue
		}
		found, err := s.audit.state.link.kernel.Rows(s.audit.state.have.program, set)
		if err != nil {
			return err
		}
		s.compareExtra(set, found)
	}
	return nil
}

// compareExtra finds the rows of a set that were not committed.
func (s *scrubber) compareExtra(set *nft.Set, found []nft.Row) {
	extra := make(map[nft.Tuple]nft.Row, len(found))
	for _, r := range found {
		extra[r.Key] = r
	}
	for rows := range s.audit.state.have.allRows(s.audit.state.source) {
		for _, r := range rows {
			if r.Set == set {
				delete(extra, r.Key)
			}
		}
	}
	for _, r := range extra {
		s.addExtra(r)
	}
}
