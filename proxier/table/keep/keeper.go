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

// Keeper keeps one table. Only one goroutine may use it at a time.
type Keeper struct {
	writer
	open func() (Kernel, error)
	rest time.Duration // before the next Check
}

// New returns a Keeper whose first Sync writes everything. Open must be called
// first.
func New(c Config) *Keeper {
	k := &Keeper{
		writer: writer{state: state{
			link: link{
				batch: nft.NewBatch(c.Table), table: c.Table, generation: c.Generation,
				Totals: Totals{RewriteCauses: make(map[RewriteCause]int)},
			},
			source: c.Source, have: newCommitted(), leftovers: make(leftovers),
			failing: make(map[Owner]struct{}),
		},
			limits: c.Limits, queue: queue{rate: firstRate}, repairs: repairs{count: make(map[DamageKind]int)},
		}, open: c.Open}
	k.scrubber.audit.state = &k.state
	k.Distrust(RewriteStart, "first sync")
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
	k.kernel = conn
	k.generation.ports.Store(port, true)
	k.generation.monitor.open()
	return nil
}

// Close closes the connection to the kernel. The table stays.
func (k *Keeper) Close() error {
	if k.kernel == nil {
		return nil
	}
	return errors.Join(k.generation.monitor.close(), k.kernel.Close())
}

// Kernel returns the connection to the kernel, nil before Open.
func (k *Keeper) Kernel() Kernel { return k.kernel }

// Sync writes what changed. Its cost depends on the number of changes. If the
// kernel may not have what was committed, Sync writes everything. Otherwise
// changes can wait for their turns (see Next).
func (k *Keeper) Sync() error { return k.sync(CauseChanges) }

// Resync syncs like Sync, and also tries again what the kernel refused. Check
// repairs what other programs changed; Resync does not.
func (k *Keeper) Resync() error {
	for o := range k.failing {
		k.Touch(o)
	}
	k.leftovers.retry()
	return k.sync(CausePeriodic)
}

// sync syncs because of a cause. A doubt takes precedence over it.
func (k *Keeper) sync(cause string) error {
	if k.kernel == nil {
		return fmt.Errorf("sync %s: Open was not called or failed", k.name())
	}
	k.retry(false)
	if k.suspect && k.doubt == "" {
		if err := k.repairAfter(k.Verify()); err != nil {
			return err
		}
	}
	if k.doubt == "" {
		return k.timed(cause, func() error { return errors.Join(k.updateInParts(), k.retire()) })
	}
	klog.V(2).InfoS("Writing the whole table", "table", k.name(), "reason", k.doubt)
	return k.timed(k.doubt, k.rewrite)
}

// Check verifies the table if another program committed since the last
// verification, and repairs it if necessary. While no other program commits, it
// costs one small request. After such commits, it also scrubs a few rows.
func (k *Keeper) Check() error {
	if k.doubt != "" {
		return nil // the next sync writes everything
	}
	if now := time.Now(); k.repairs.isGone && k.repairs.waitRows(now) > 0 {
		return nil // the table is written after the pause
	}
	err := k.verify()
	if err == nil {
		err = k.scrubber.scrub(&k.writer)
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
	if !k.unreported || k.damaged != nil || k.doubt != "" || time.Since(k.reported) < reportPeriod {
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
	if k.rest = 0; k.repairs.wait(time.Now(), k.limits) > 0 {
		return nil
	}
	err := k.read(k.kernel.Generation)
	if err != nil || k.isVerified() {
		return err
	}
	used, err := ThreadTimeOf(k.Verify)
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
func (k *Keeper) Generation() *Generation { return k.generation }

// IsIdle reports whether a Check has nothing to do before another program
// commits.
func (k *Keeper) IsIdle() bool { return k.isVerified() && k.scrubber.isDone() && !k.unreported }

// Rest returns how long to wait before the next Check. It is 0 unless the last
// one verified the table.
func (k *Keeper) Rest() time.Duration { return k.rest }

// timed runs a sync and passes its result to the source.
func (k *Keeper) timed(cause string, sync func() error) error {
	start, before, full := time.Now(), k.Totals, k.doubt != ""
	err := sync()
	end := time.Now()
	r := SyncResult{
		Family: k.table.Family, Cause: cause, Ended: end, Duration: end.Sub(start), Err: err,
		Full:         full || k.Rewrites != before.Rewrites || k.doubt != "",
		Transactions: k.Transactions - before.Transactions, Rows: k.RowsWritten - before.RowsWritten,
	}
	if r.Full {
		r.Rewrite, r.Why = k.cause, k.why
	}
	k.source.Report(r)
	return err
}

// InDoubt returns the reason why the next Sync writes everything, "" if it does
// not.
func (k *Keeper) InDoubt() string { return k.doubt }

// UpToDate reports whether a sync succeeded since something was touched, and no
// owner is held back. Changes can still wait for their turns (see Waits).
func (k *Keeper) UpToDate() bool {
	for o := range k.failing {
		if o.Kept().trouble.waits() {
			return false
		}
	}
	return k.doubt == "" && !k.unsynced
}

// Next returns the time until a Sync is due for owners that wait for their
// turns, or that are held back. ok is false if there are none.
func (k *Keeper) Next() (wait time.Duration, ok bool) {
	now, wait := time.Now(), longestRest
	for _, a := range k.queue.accounts {
		wait, ok = min(wait, a.wait(now, k.limits.Burst)), true
	}
	for o := range k.failing {
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
func (k *Keeper) Program() *nft.Table { return k.have.program }

// Uses reports whether a set had rows after the last commit.
func (k *Keeper) Uses(s *nft.Set) bool { return k.have.uses(s) }

// Has reports whether a row of no owner, or a row of a shared set, was
// committed. Only the set and the key of the row matter.
func (k *Keeper) Has(r nft.Row) bool {
	if k.source.Shared(r.Set) {
		return k.have.shared[rowKey{r.Set, r.Key}].n > 0
	}
	for _, own := range k.have.rows {
		if own.Set == r.Set && own.Key == r.Key {
			return true
		}
	}
	return false
}

// Failing iterates over the owners that could not be written as they are wanted
// when they were last tried.
func (k *Keeper) Failing() iter.Seq[Owner] { return maps.Keys(k.failing) }

// Scrubbed reports whether everything was compared since another program last
// committed.
func (k *Keeper) Scrubbed() bool { return k.scrubber.isDone() }

// Diff returns a comparison of what is wanted with the kernel. It begins at the
// start, or after a cursor.
func (k *Keeper) Diff(after string, wanted Wanted) (*Diff, error) {
	return newDiff(&k.state, after, wanted)
}

// Stats are present numbers of a table.
type Stats struct {
	// Rows is the number of rows in the kernel now, by set. It does not contain
	// the sets that packets fill.
	Rows map[string]int
	// Repairs counts the repairs of changes by other programs, by kind of the
	// damage.
	Repairs map[DamageKind]int
	Totals
}

// Stats returns the present numbers.
func (k *Keeper) Stats() Stats {
	s := Stats{Rows: make(map[string]int, len(k.have.counts)), Repairs: maps.Clone(k.repairs.count), Totals: k.Totals}
	for set, n := range k.have.counts {
		s.Rows[set.Name] = n
	}
	s.RewriteCauses = maps.Clone(k.RewriteCauses)
	return s
}
