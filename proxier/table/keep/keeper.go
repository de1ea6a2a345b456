package keep

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// Config is the configuration of a Keeper.
type Config struct {
	Table  *nft.Table // its family and name
	Source Source
	// Generation is shared by the Keepers of a network namespace.
	Generation *Generation
	// Open connects to the kernel.
	Open func() (Kernel, error)
	// Limits may change between calls of the Keeper.
	Limits *Limits
}

// New returns a Keeper whose first Sync writes everything. Open must be called
// first.
func New(c Config) *Keeper {
	l := &link{
		batch: nft.NewBatch(c.Table), table: c.Table, generation: c.Generation,
		totals: Totals{RewriteCauses: make(map[RewriteCause]int)},
	}
	k := &Keeper{
		link: l, source: c.Source, limits: c.Limits, open: c.Open, queue: queue{rate: firstRate},
		state: &state{
			link: l, source: c.Source, have: newCommitted(), leftovers: make(leftovers),
			failing: make(map[Owner]struct{}),
		},
		repairs: repairs{count: make(map[DamageKind]int)},
	}
	k.scrubber.audit.state = k.state
	k.link.distrust(RewriteStart, "first sync")
	return k
}

// Open connects to nf_tables in the network namespace of the calling thread.
func (k *Keeper) Open() error {
	conn, err := k.open()
	if err != nil {
		return err
	}
	port, err := conn.Port()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	k.link.kernel = conn
	k.link.generation.ports.Store(port, true)
	k.link.generation.monitor.open()
	return nil
}

// Close closes the connection to the kernel. The table stays.
func (k *Keeper) Close() error {
	if k.link.kernel == nil {
		return nil
	}
	return errors.Join(k.link.generation.monitor.close(), k.link.kernel.Close())
}

// Kernel returns the connection to the kernel, nil before Open.
func (k *Keeper) Kernel() Kernel { return k.link.kernel }

// Sync writes what changed. Its cost depends on the number of changes. If the
// kernel may not have what was committed, Sync writes everything. Otherwise
// changes can wait for their turns (see Next).
func (k *Keeper) Sync() error { return k.sync(CauseChanges) }

// Resync syncs like Sync, and also tries again what the kernel refused. Check
// repairs what other programs changed; Resync does not.
func (k *Keeper) Resync() error {
	for o := range k.state.failing {
		k.Touch(o)
	}
	k.state.leftovers.retry()
	return k.sync(CausePeriodic)
}

// sync syncs because of a cause. A doubt takes precedence over it.
func (k *Keeper) sync(cause string) error {
	if k.link.kernel == nil {
		return fmt.Errorf("sync %s: Open was not called or failed", k.link.name())
	}
	k.retry(false)
	if k.state.suspect && k.link.doubt == "" {
		if err := k.repairAfter(k.state.verify()); err != nil {
			return err
		}
	}
	if k.link.doubt == "" {
		return k.timed(cause, func() error { return errors.Join(k.updateInParts(), k.retire()) })
	}
	klog.V(2).InfoS("Writing the whole table", "table", k.link.name(), "reason", k.link.doubt)
	return k.timed(k.link.doubt, k.rewrite)
}

// Check verifies the table if another program committed since the last
// verification, and repairs it if necessary. While no other program commits, it
// costs one small request. After such commits, it also scrubs a few rows.
func (k *Keeper) Check() error {
	err := k.check()
	k.outage.update(k, err)
	return err
}

func (k *Keeper) check() error {
	if k.link.doubt != "" {
		return nil // the next sync writes everything
	}
	if now := time.Now(); k.repairs.isGone && k.repairs.waitRows(now) > 0 {
		return nil // the table is written after the pause
	}
	err := k.verify()
	if err == nil {
		err = k.scrubber.scrub(k)
	}
	if err = k.repairAfter(err); err == nil {
		k.reportRepair()
	}
	return err
}

// reportPeriod is the shortest time between two reports of repairs.
const reportPeriod = time.Second

// reportRepair reports everything as committed after a repair: meanwhile,
// packets may have met a table without rules.
func (k *Keeper) reportRepair() {
	if !k.unreported || k.state.damaged != nil || k.link.doubt != "" || time.Since(k.reported) < reportPeriod {
		return
	}
	k.unreported, k.reported = false, time.Now()
	c := &Commit{Whole: true}
	for o := range k.source.Owners(true) {
		have := o.Kept().have
		c.Changes = append(c.Changes, Change{Owner: o, Before: have, Next: have})
	}
	k.source.Report(c)
}

// repairAfter repairs the damage that an error describes. It returns all other
// errors.
func (k *Keeper) repairAfter(err error) error {
	d, ok := errors.AsType[*Damage](err)
	if !ok {
		return err
	}
	whole, err := k.repair(d)
	if whole {
		return k.timed(d.Error(), func() error { return k.repairWhole(d) })
	}
	return err
}

// verify verifies the table if another program committed since the last
// verification, and if a repair may follow.
func (k *Keeper) verify() error {
	k.rest = 0
	err := k.link.read(k.link.kernel.Generation)
	if err != nil || k.state.isVerified() || k.repairs.wait(time.Now(), k.limits) > 0 {
		return err
	}
	used, err := ThreadTimeOf(k.state.verify)
	k.scrubber.checked += used
	if k.rest = min(used*verifyShare, longestRest); k.IsRepairing() {
		k.rest = 0
	}
	return err
}

// IsRepairing reports whether a repair of rows is under way, which the next
// Check continues.
func (k *Keeper) IsRepairing() bool { return k.scrubber.isRepairing(&k.repairs) }

// Generation returns the Generation of the Config.
func (k *Keeper) Generation() *Generation { return k.link.generation }

// IsIdle reports whether a Check has nothing to do before another program
// commits.
func (k *Keeper) IsIdle() bool { return k.state.isVerified() && k.scrubber.isDone() && !k.unreported }

// Rest returns how long to wait before the next Check. It is 0 unless the last
// one verified the table.
func (k *Keeper) Rest() time.Duration { return k.rest }

// timed runs a sync and passes its result to the source.
func (k *Keeper) timed(cause string, sync func() error) error {
	start, before, full, now := time.Now(), k.link.totals, k.link.doubt != "", &k.link.totals
	err := sync()
	end := time.Now()
	r := SyncResult{
		Family: k.link.table.Family, Cause: cause, Ended: end, Duration: end.Sub(start), Err: err,
		Full:         full || now.Rewrites != before.Rewrites || k.link.doubt != "",
		Transactions: now.Transactions - before.Transactions, Rows: now.RowsWritten - before.RowsWritten,
	}
	if r.Full {
		r.Rewrite, r.Why = k.link.cause, k.link.why
	}
	k.source.Report(r)
	return err
}

// InDoubt returns the reason why the next Sync writes everything, "" if it does
// not.
func (k *Keeper) InDoubt() string { return k.link.doubt }

// UpToDate reports whether a sync succeeded since something was touched, and no
// owner is held back, and no rows are known to be damaged. Changes can still
// wait for their turns (see Waits).
func (k *Keeper) UpToDate() bool {
	for o := range k.state.failing {
		if o.Kept().trouble.waits() {
			return false
		}
	}
	return k.link.doubt == "" && !k.unsynced && k.state.damaged == nil && !k.repairs.isGone
}

// Next returns the time until a Sync is due for owners that wait for their
// turns, or that are held back. ok is false if there are none.
func (k *Keeper) Next() (wait time.Duration, ok bool) {
	now, wait := time.Now(), longestRest
	for _, a := range k.queue.accounts {
		wait, ok = min(wait, a.wait(now, k.limits.Burst)), true
	}
	for o := range k.state.failing {
		// One that waits for its turn is tried again then.
		if t := o.Kept().trouble; t.waits() && !o.Kept().pending {
			wait, ok = min(wait, max(0, t.after.Sub(now))), true
		}
	}
	return wait, ok
}

// Waits returns the accounts whose owners wait for their turns.
func (k *Keeper) Waits() []Wait { return k.queue.waits() }

// Program returns the program that was committed, nil before the first commit.
// It must not be modified.
func (k *Keeper) Program() *nft.Table { return k.state.have.program }

// Uses reports whether a set had rows after the last commit.
func (k *Keeper) Uses(s *nft.Set) bool { return k.state.have.uses(s) }

// Has reports whether a row of no owner, or a row of a shared set, was
// committed. Only the set and the key of the row matter.
func (k *Keeper) Has(r nft.Row) bool {
	if k.source.Shared(r.Set) {
		return k.state.have.shared[rowKey{r.Set, r.Key}].n > 0
	}
	for _, own := range k.state.have.rows {
		if own.Set == r.Set && own.Key == r.Key {
			return true
		}
	}
	return false
}

// Forget forgets the failures of an owner.
func (k *Keeper) Forget(o Owner) { k.state.forget(o) }

// Distrust makes the next Sync write everything. why is a reason for the log.
func (k *Keeper) Distrust(cause RewriteCause, why string) { k.link.distrust(cause, why) }

// Verify compares the table with what was committed, without its rows (see
// state.verify).
func (k *Keeper) Verify() error { return k.state.verify() }

// Failing iterates over the owners that could not be written as they are wanted
// when they were last tried.
func (k *Keeper) Failing() iter.Seq[Owner] { return maps.Keys(k.state.failing) }

// Scrubbed reports whether everything was compared since another program last
// committed.
func (k *Keeper) Scrubbed() bool { return k.scrubber.isDone() }

// Diff returns a comparison of what is wanted with the kernel.
func (k *Keeper) Diff(wanted Wanted) (*Diff, error) {
	return newDiff(k.state, wanted)
}

// Stats are present numbers of a table.
type Stats struct {
	// Rows is the number of rows in the kernel now, by set. It does not contain
	// the sets that packets fill.
	Rows map[string]int
	// Repairs counts the repairs of changes by other programs, by kind of the
	// damage.
	Repairs map[DamageKind]int
	// Outage is nil unless damage is not repaired at once.
	Outage *Outage
	Totals
}

// Damaged reports whether new connections failed: damage remained after the
// last Check, or the structure was repaired since the Check before it.
func (k *Keeper) Damaged() bool { return k.outage.found }

// Stats returns the present numbers.
func (k *Keeper) Stats() Stats {
	rows := k.state.have.counts
	s := Stats{Rows: make(map[string]int, len(rows)), Repairs: maps.Clone(k.repairs.count), Totals: k.link.totals}
	for set, n := range rows {
		s.Rows[set.Name] = n
	}
	s.Outage = k.outage.present(&k.repairs, time.Now())
	s.RewriteCauses = maps.Clone(k.link.totals.RewriteCauses)
	return s
}
