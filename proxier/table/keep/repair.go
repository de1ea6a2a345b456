package keep

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// A repair writes what is damaged, so that it is never larger than the damage:
//
//	flags, counters, timeouts, chains, rules   one transaction, at once
//	rows of damaged sets, chains of owners     in steps, between syncs (scrub.go)
//	table deleted or replaced, set of another  a rewrite
//	  type
//
// After a repair, the next Check verifies everything.

// repair repairs damage that verification found. whole reports that only a
// rewrite repairs it.
func (k *Keeper) repair(d *Damage) (whole bool, err error) {
	now := time.Now()
	if wait := k.repairs.wait(now, k.limits); wait > 0 {
		return false, k.laterRepair(d, wait)
	}
	used, err := ThreadTimeOf(func() (err error) {
		whole, err = k.repairStructure()
		return err
	})
	k.rewriting += used
	k.repairs.charge(used, now)
	if wait := k.repairs.waitRows(now); whole && wait > 0 {
		k.repairs.isGone = true
		return false, k.laterRepair(d, wait)
	}
	if err != nil {
		return false, err
	}
	k.countRepair(d, now)
	if whole {
		return true, nil
	}
	err = k.scrubber.scrub(k) // a small repair is complete then
	if d, ok := errors.AsType[*Damage](err); ok {
		klog.InfoS("Failed to repair a part of the table; writing all of it", "table", k.link.name(), "err", d)
		return true, nil
	}
	if err == nil {
		k.source.Report(d)
	}
	return false, err
}

// laterRepair returns the error of a repair that has to wait.
func (k *Keeper) laterRepair(d *Damage, wait time.Duration) error {
	return fmt.Errorf("%w; the next repair of table %s is in %v", d, k.link.name(), wait.Round(time.Millisecond))
}

// repairWhole repairs damage by writing everything.
func (k *Keeper) repairWhole(d *Damage) error {
	k.link.distrust(RewriteDamage, d.Error())
	before := k.rewriting
	err := k.rewrite()
	k.repairs.chargeRows(k.rewriting-before, time.Now(), k.limits)
	return err
}

// countRepair logs and counts a repair.
func (k *Keeper) countRepair(d *Damage, now time.Time) {
	k.outage.what = d.Error()
	again := k.repairs.add(d.Kind, now, k.link.seen)
	if k.repairs.logs(now) {
		klog.InfoS("Repairing the table", "table", k.link.name(), "kind", d.Kind, "reason", d.Error(),
			"othersSinceLastLogged", k.repairs.unlogged)
		k.repairs.unlogged = 0
	}
	if again {
		k.link.generation.nameOthers(func(processes []string) { k.source.Report(Blame(processes)) })
	}
}

// repairStructure repairs everything but rows and the chains of owners, and
// records which of these may be damaged. It ends when it reads a structure that
// is as it was committed.
func (k *Keeper) repairStructure() (whole bool, err error) {
	was := k.state.structure
	found := &damage{sets: make(map[*nft.Set]bool)}
	for attempt := range maxAttempts {
		a := audit{state: k.state, all: true}
		late := attempt >= lateAttempt
		err = k.link.readOnce(late, func() error { return a.readDamage(was, found) })
		if err == nil && was != nil && a.now.table.Handle != was.table.Handle {
			return true, nil
		}
		if err == nil {
			k.link.resetBatch(false)
			if !k.writeStructure(&a) {
				return true, nil
			}
			if k.link.batch.Empty() {
				k.state.recordStructure(a.now)
				k.startRepair(found)
				return false, nil
			}
			err = k.commitRepair(late)
		}
		if err != nil && !errors.Is(err, nft.ErrGeneration) {
			return false, err
		}
	}
	return false, err
}

// readDamage reads the structure, and finds the sets whose rows may be damaged:
// those that were added since, or that have another number of rows.
func (a *audit) readDamage(was *structure, found *damage) error {
	have := a.state.have
	program := have.program
	if err := a.compareStructure(have.someChains(a.state.source, len(have.chains))); err != nil || !a.now.exists() {
		return err
	}
	isRule := func(d Difference) bool { return d.damage.Kind == DamagedRule }
	found.chains = found.chains || slices.ContainsFunc(a.found, isRule)
	structural := len(a.found)
	for _, set := range program.Sets {
		o := object{kindSet, set.Name}
		has, exists := a.now.objects[o]
		replaced := was != nil && was.has(o) && was.objects[o].handle != has.handle
		if !exists || replaced {
			found.sets[set], found.chains = !exists || has.set.Count == 0, true
			continue
		}
		isHalf, err := a.sampleSet(set, has.set.Count)
		if err != nil {
			return err
		}
		if len(a.found) > structural {
			found.sets[set], a.found = has.set.Count == 0, a.found[:structural]
			found.vital = found.vital || isHalf && a.state.source.IsVital(set)
		}
	}
	return nil
}

// writeStructure writes what differs in a structure. ok is false if that needs
// a rewrite.
func (k *Keeper) writeStructure(a *audit) (ok bool) {
	var regular, base []*nft.Chain
	add := func(chains ...*nft.Chain) {
		for _, c := range chains {
			if to := &regular; c.Hook != nil {
				base = appendNew(base, c)
			} else {
				*to = appendNew(regular, c)
			}
		}
	}
	for _, d := range a.found {
		has, exists := a.now.objects[d.object]
		switch {
		case d.damage.Kind == DamagedTable:
			if !a.now.exists() {
				return false
			}
			k.link.batch.AddTable(k.state.have.program.Comment) // resets the flags
		case d.form != nil:
			switch form := d.form.(type) {
			case *nft.Counter:
				k.link.batch.AddCounter(form)
			case *nft.Set:
				if exists {
					return false // of another type
				}
				k.link.batch.AddSet(form)
			case *nft.CtTimeout:
				add(k.replaceTimeout(form, exists)...)
			case *nft.Chain:
				if exists && !sameHook(has.chain.Hook, form.Hook) {
					k.deleteChain(form.Name)
				}
				add(form)
			}
		case d.chain != nil:
			add(d.chain)
		case d.Kind == Extra:
			k.deleteChain(d.object.name)
		}
	}
	tx := newTransaction(k.link.batch, k.source, k.state.have)
	tx.writeChains(regular...)
	tx.writeChains(base...)
	return true
}

func appendNew(all []*nft.Chain, c *nft.Chain) []*nft.Chain {
	if slices.ContainsFunc(all, func(o *nft.Chain) bool { return o.Name == c.Name }) {
		return all
	}
	return append(all, c)
}

// sameHook reports whether base chains differ in their policies at most.
func sameHook(a, b *nft.Hook) bool {
	if a == nil || b == nil {
		return a == b
	}
	policy := *a
	policy.Drop = b.Drop
	return policy.Equal(b)
}

// replaceTimeout writes an object `ct timeout`, and returns the chains that
// refer to it, whose rules must be written again.
func (k *Keeper) replaceTimeout(c *nft.CtTimeout, exists bool) (chains []*nft.Chain) {
	for _, chain := range k.state.have.program.Chains {
		if refersTo(chain, c) {
			chains = append(chains, chain)
			k.link.batch.AddChain(chain)
			k.link.batch.FlushChain(chain.Name)
		}
	}
	if exists {
		k.link.batch.DeleteCtTimeout(c.Name)
	}
	k.link.batch.AddCtTimeout(c)
	return chains
}

// commitRepair commits a batch of a repair. Unless it is late, it expects that
// no other program committed since the repair read the table: what a repair
// writes is right in any case, but a row may not be there any more.
func (k *Keeper) commitRepair(late bool) error {
	if !late {
		return k.link.commitExpecting()
	}
	k.link.batch.Expect(0)
	return k.link.generation.exclude(k.link.commit) // other programs' commits are detected later
}

// startRepair records damage that remains, and begins to compare it with what
// was committed.
func (k *Keeper) startRepair(found *damage) {
	if k.state.damaged != nil {
		for set, empty := range k.state.damaged.sets {
			if !found.has(set) {
				found.sets[set] = empty
			}
		}
		found.chains = found.chains || k.state.damaged.chains
	}
	if found.vital {
		k.repairs.vital++
	}
	k.unreported = true
	if k.state.verified = -1; len(found.sets) > 0 || found.chains && k.state.have.ownChains > 0 {
		k.state.damaged = found
		k.scrubber.restart()
	}
}

// repairDifferences calls a function that finds differences by an audit, and
// repairs them, in one generation. If another program commits meanwhile, it
// tries again with fewer rows, and after lateAttempt failures not in one
// generation. It returns the number of differences.
func (k *Keeper) repairDifferences(a *audit, rows *int, compare func() error) (found int, err error) {
	before := *a
	for attempt := range maxAttempts {
		late := attempt >= lateAttempt
		err := k.link.readOnce(late, func() error {
			*a = before
			a.found, a.left = nil, *rows
			return compare()
		})
		if err == nil && len(a.found) > 0 {
			err = k.repairRows(a.found, late)
		}
		if err == nil {
			return len(a.found), nil
		}
		*a = before
		if !errors.Is(err, nft.ErrGeneration) {
			return 0, err
		}
		*rows = max(1, *rows/2)
	}
	return 0, fmt.Errorf("compare table %s: %w, %d times in a row", k.link.name(), nft.ErrGeneration, maxAttempts)
}

// repairOwners repairs the rows and chains of owners that have a conflict: the
// kernel has other ones than were committed, or rows of other programs with
// keys that an owner needs. found is false if there are none.
func (k *Keeper) repairOwners(owners []Owner) (found bool, err error) {
	a, all := audit{state: k.state}, math.MaxInt
	n, err := k.repairDifferences(&a, &all, func() error {
		for a.owners = owners; len(a.owners) > 0; {
			if err := a.owner(); err != nil {
				return err
			}
		}
		for _, o := range owners {
			if err := a.takenKeys(o); err != nil {
				return err
			}
		}
		return nil
	})
	return n > 0, err
}

// takenKeys finds rows in the kernel that were not committed, with keys that an
// owner needs.
func (a *audit) takenKeys(o Owner) error {
	have := o.Kept().have
	next, err := a.state.source.Content(o, have, false)
	if err != nil {
		return nil // it is refused
	}
	ours := make(map[rowKey]bool)
	record := func(o Owner) {
		for _, r := range o.Kept().rows(nil) {
			ours[rowKey{r.Set, r.Key}] = true
		}
	}
	record(o)
	a.state.source.Together(o, func(other Owner, _ bool) { record(other) })
	needed := slices.DeleteFunc(rowsOf(nil, next), func(r nft.Row) bool {
		return ours[rowKey{r.Set, r.Key}] || a.state.source.Shared(r.Set)
	})
	return a.eachSet(needed, func(wanted, found []nft.Row) {
		for _, r := range found {
			if r.Set != nil {
				a.addExtra(r)
			}
		}
	})
}

// repairRows repairs rows and chains that were just compared. If another
// program committed since, and the repair is not late, the error is
// nft.ErrGeneration.
func (k *Keeper) repairRows(found []Difference, late bool) error {
	first := found[0].damage
	if n := len(found) - 1; n > 0 {
		first.What = fmt.Sprintf("%s, and %d other changes", first.What, n)
	}
	k.link.resetBatch(false)
	tx := newTransaction(k.link.batch, k.source, k.state.have)
	seen := make(map[rowKey]bool, len(found)) // several owners can have a row
	var chains []*nft.Chain
	var added []nft.Row
	for _, d := range found {
		key := rowKey{d.want.Set, d.want.Key}
		switch {
		case d.damage.Kind == DamagedAffinity:
			chains = appendNew(chains, d.chain)
		case d.damage.Kind != DamagedRow && d.damage.Kind != DamagedRows:
			return &first // of the structure
		case d.Kind == Extra:
			k.link.batch.DeleteRow(d.has)
		case !seen[key]:
			if seen[key] = true; d.has.Set != nil {
				k.link.batch.DeleteRow(d.has)
			}
			added = append(added, d.want)
		}
	}
	tx.writeChains(chains...)
	for _, r := range added {
		k.link.batch.AddRow(r)
	}
	err := k.commitRepair(late)
	if failureOf(err).isOfMessage() && failureOf(err) != failureTransient && err != nil {
		klog.InfoS("Failed to repair rows", "table", k.link.name(), "err", err)
		return &first
	}
	if err == nil && k.state.damaged == nil {
		k.countRepair(&first, time.Now())
		k.source.Report(&first)
		k.state.verified = -1 // the next Check counts the rows: there may be another one in place of a lost one
	}
	return err
}

// The structure of a table is repaired at once, however often another program
// damages it, as long as this takes at most 1/repairShare of a core. Rows are
// repaired, and everything is written, at once, too, unless that is a large
// repair and another program damages the table again and again: from the second
// time within calmTime on, the next one waits, each time longer, so that two
// proxies do not fight for the table at full speed.
const (
	calmTime    = 5 * time.Second
	repairShare = 20
	// repairBurst is the CPU time that repairs of the structure may take in a
	// row, in units of Limits.FreeRepair.
	repairBurst = 5
)

// repairs determines when the table may be repaired, and counts repairs.
type repairs struct {
	last    time.Time
	foreign int  // link.seen at the last repair
	again   bool // another program damages the table repeatedly
	count   map[DamageKind]int
	// vital is the number of repairs whose damage was vital.
	vital int

	// debt is the CPU time of repairs of the structure until charged, less the
	// share of the time that has passed.
	debt    time.Duration
	charged time.Time

	cost     time.Duration // CPU time of the last repair apart from the structure
	pause    time.Duration // after the last large repair
	paused   time.Time     // when it ended
	isGone   bool          // everything must be written, after the pause
	logged   time.Time
	unlogged int // repairs since then
}

// wait returns how long to wait before the next repair of the structure.
func (r *repairs) wait(now time.Time, l *Limits) time.Duration {
	return max(0, max(0, r.debt-repairBurst*l.FreeRepair)*repairShare-now.Sub(r.charged))
}

// waitRows returns how long to wait before rows are repaired, or everything is
// written.
func (r *repairs) waitRows(now time.Time) time.Duration { return max(0, r.pause-now.Sub(r.paused)) }

// recent reports whether the last repair was a moment ago, and another program
// committed after it.
func (r *repairs) recent(now time.Time, foreign int) bool {
	return !r.last.IsZero() && now.Sub(r.last) < calmTime+r.pause && foreign != r.foreign
}

// add counts a repair that begins now. It reports whether another program
// changes the table repeatedly.
func (r *repairs) add(kind DamageKind, now time.Time, foreign int) (again bool) {
	if r.again = r.recent(now, foreign); !r.again {
		r.pause = 0
	}
	r.last, r.foreign, r.cost, r.isGone = now, foreign, 0, false
	r.count[kind]++
	return r.again
}

// charge records the CPU time of a repair of the structure.
func (r *repairs) charge(used time.Duration, now time.Time) {
	r.debt = max(0, r.debt-now.Sub(r.charged)/repairShare) + used
	r.charged = now
}

// chargeRows adds CPU time to the cost of the last repair.
func (r *repairs) chargeRows(used time.Duration, now time.Time, l *Limits) {
	wasSmall := r.cost <= l.FreeRepair
	if r.cost += used; r.cost <= l.FreeRepair || !r.again {
		return
	}
	if r.paused = now; wasSmall {
		r.pause = min(max(2*r.pause, l.FirstPause), l.LastPause)
	}
}

// logs reports whether a repair is logged: one in a second is.
func (r *repairs) logs(now time.Time) bool {
	if now.Sub(r.logged) < time.Second {
		r.unlogged++
		return false
	}
	r.logged = now
	return true
}
