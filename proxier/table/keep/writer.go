package keep

import (
	"slices"
	"time"
)

// writer writes changes of a table.
type writer struct {
	state
	limits         *Limits
	pending        []Owner // may contain owners that were written meanwhile
	programChanged bool    // since it was written
	failures       int     // updates in a row that failed without an owner that can be held back
	repairs        repairs
	monitor        monitor
}

// Touch records that the content of an owner may have changed.
func (k *writer) Touch(o Owner) {
	kept := o.Kept()
	if !kept.queued {
		k.pending = append(k.pending, o)
	}
	kept.queued, kept.pending, kept.deferred = true, true, false
}

// dequeue removes the owners that were written from those that changed.
func (k *writer) dequeue() {
	k.pending = slices.DeleteFunc(k.pending, func(o Owner) bool {
		kept := o.Kept()
		kept.queued = kept.pending
		return !kept.pending
	})
	if len(k.pending) == 0 {
		k.pending = nil // which can be large
	}
}

// TouchProgram records that the program, or a row of no owner, changed.
func (k *writer) TouchProgram() { k.programChanged = true }

// retry makes the next contents of owners the wanted ones: of those that wait
// for another sync, and of those that changed.
func (k *writer) retry() {
	k.source.Begin()
	for o := range k.failing {
		kept := o.Kept()
		if kept.trouble.waits() {
			k.Touch(o)
		}
		if kept.pending {
			kept.trouble.instead = theWanted
		}
	}
}

// Limits limit what a Keeper does at a time.
type Limits struct {
	// PartCost is the cost of a part of light owners, HeavyCost the cost above
	// which an owner is heavy (see Source.Cost).
	PartCost, HeavyCost int
	// Time is the time after which an update begins no second heavy part.
	Time time.Duration
	// Burst is the CPU time that the heavy parts of a Group may take in a row.
	// Then they take 1/paceShare of a core.
	Burst time.Duration
	// ColdBytes is the size at which a transaction ends while no packet uses
	// the table. The kernel can stall while a map grows within one huge
	// transaction.
	ColdBytes int
	// FirstPause is the shortest pause between two repairs while another
	// program keeps changing the table, LastPause the longest one.
	FirstPause, LastPause time.Duration
	// CheckShare limits the CPU time of verifications and of the scrubber, for
	// one table, to 1/CheckShare of a core. While verifications take more, the
	// scrubber has 1/ScrubShare.
	CheckShare, ScrubShare time.Duration
}

// DefaultLimits returns the usual limits. ColdBytes are about 20,000 rows.
func DefaultLimits() Limits {
	return Limits{
		PartCost: 20_000, HeavyCost: 4096, Time: 50 * time.Millisecond, Burst: time.Second, ColdBytes: 1200 << 10,
		FirstPause: 250 * time.Millisecond, LastPause: 10 * time.Second, CheckShare: 250, ScrubShare: 1000,
	}
}
