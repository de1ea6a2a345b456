package keep

import "time"

// writer writes changes of a table.
type writer struct {
	state
	limits         *Limits
	queue          queue
	unsynced       bool          // something was touched since the last sync that succeeded
	programChanged bool          // since it was written
	rewriting      time.Duration // CPU time of all rewrites and repairs
	failures       int           // updates in a row that failed without an owner that can be held back
	repairs        repairs
	scrubber       scrubber
	unreported     bool // a repair was not reported yet (see Keeper.reportRepair)
	reported       time.Time
	buffers        rowBuffers
}

// Touch records that the content of an owner may have changed.
func (k *writer) Touch(o Owner) {
	kept := o.Kept()
	if !kept.pending {
		kept.touched = time.Now()
	}
	if !kept.queued {
		k.queue.add(o)
	}
	kept.queued, kept.pending, k.unsynced = true, true, true
}

// TouchProgram records that the program, or a row of no owner, changed.
func (k *writer) TouchProgram() { k.programChanged, k.unsynced = true, true }

// retry makes the next contents of owners the wanted ones: of those that are
// held back until now, and of those that changed. all stands for those that are
// held back longer, too.
func (k *writer) retry(all bool) {
	now := time.Now()
	for o := range k.failing {
		if kept := o.Kept(); kept.HeldBack() && (all || !now.Before(kept.trouble.after)) {
			k.Touch(o)
		}
	}
	for o := range k.failing {
		if kept := o.Kept(); kept.HeldBack() && kept.pending {
			k.touchTogether(o)
		}
	}
	for o := range k.failing {
		if kept := o.Kept(); kept.pending {
			kept.trouble.instead = theWanted
		}
	}
}

// touchTogether touches the owners between which and o rows move. Otherwise one
// of them would be written without these rows, as if it had not failed, or give
// them up before the other one is tried again.
func (k *writer) touchTogether(o Owner) {
	k.source.Together(o, func(other Owner, _ bool) {
		if !other.Kept().pending {
			k.Touch(other)
			k.touchTogether(other)
		}
	})
}

// Limits limit what a Keeper does at a time.
type Limits struct {
	// PartCost is the cost at which a part ends, PartTime the estimated CPU
	// time at which it ends. HeavyCost is the cost above which an owner is a
	// part of its own (see Source.Cost).
	PartCost, HeavyCost int
	// StageRows is the number of rows of one owner that a transaction changes.
	// A larger change has several stages.
	StageRows int
	PartTime  time.Duration
	// Spread limits the accounts of a part: it has none that was served this
	// much longer than the first one, which must not wait for the others.
	Spread time.Duration
	// Time is the time after which a sync begins no part.
	Time time.Duration
	// Burst is the CPU time that an account may take in a row, beside the time
	// that all its owners take once. Then it takes 1/paceShare of a core.
	Burst time.Duration
	// FirstRetry is the time after which an owner that was held back is tried
	// again. It doubles with each failure.
	FirstRetry time.Duration
	// UnusedChains is the number of chains on demand that may be unused: an
	// owner that changes all the time can add one with each change. A chain
	// that is unused costs 1 to 3 µs for each change of a verdict map.
	// UnusedFor is how long a chain stays after its last row: a packet may have
	// found that row, and be on its way to the chain.
	UnusedChains int
	UnusedFor    time.Duration
	// ColdBytes is the size at which a transaction ends while no packet uses
	// the table. The kernel can stall while a map grows within one huge
	// transaction.
	ColdBytes int
	// FreeRepair is the CPU time of a repair above which it is large.
	// FirstPause is the shortest pause after a large repair while another
	// program keeps changing the table, LastPause the longest one.
	FreeRepair, FirstPause, LastPause time.Duration
	// CheckShare limits the CPU time of verifications and of the scrubber, for
	// one table, to 1/CheckShare of a core. While verifications take more, the
	// scrubber has 1/ScrubShare.
	CheckShare, ScrubShare time.Duration
}

// DefaultLimits returns the usual limits. ColdBytes are about 20,000 rows.
func DefaultLimits() Limits {
	return Limits{
		PartCost: 20_000, HeavyCost: 4096, StageRows: 10_000,
		PartTime: 10 * time.Millisecond, Time: 20 * time.Millisecond,
		Spread: 5 * time.Millisecond, Burst: time.Second, FirstRetry: 100 * time.Millisecond, ColdBytes: 1200 << 10,
		UnusedChains: 1000, UnusedFor: time.Second,
		FreeRepair: 20 * time.Millisecond, FirstPause: 250 * time.Millisecond, LastPause: 10 * time.Second,
		CheckShare: 250, ScrubShare: 1000,
	}
}
