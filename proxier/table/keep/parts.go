package keep

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// An owner can take long to write: it has many rows or chains. It must not
// delay others. Therefore a sync writes parts, each in a transaction: first all
// light owners, then the heavy ones, one at a time. After some time it leaves
// the rest to the next sync, which begins with the light ones again.
//
// An owner is written by one transaction, so packets see its old or its new
// state. Owners between which a row moves are in one part.

// part is the owners of a transaction.
type part struct {
	owners []Owner
	cost   int
	heavy  bool
}

// updateInParts writes what changed since the last sync. Heavy owners that have
// to wait are deferred.
func (k *writer) updateInParts() error {
	start, rewrites, heavy := time.Now(), k.Rewrites, false
	for _, part := range k.parts() {
		if part.heavy && (heavy && time.Since(start) > k.limits.Time || k.mustWait(part)) {
			continue
		}
		heavy = heavy || part.heavy
		if err := k.take(part); err != nil {
			return err
		}
		if k.Rewrites != rewrites { // everything is written
			return nil
		}
	}
	k.failures = 0
	for _, o := range k.pending {
		o.Kept().deferred = true
	}
	return k.finishHeld()
}

// take writes the changes of a part. It measures a heavy part by the CPU time
// of the thread, which does not depend on other programs.
func (k *writer) take(p part) error {
	if !p.heavy {
		return k.update(p.owners, nil)
	}
	used, err := ThreadTimeOf(func() error { return k.update(p.owners, p.owners) })
	if err != nil {
		return err
	}
	first, now := p.owners[0], time.Now()
	first.Kept().written = now
	first.Group().Charge(now, used)
	return nil
}

// mustWait reports whether a part has to wait because earlier parts of its
// Group took long.
func (k *writer) mustWait(p part) bool {
	g := p.owners[0].Group()
	others := slices.ContainsFunc(p.owners, func(o Owner) bool { return o.Group() != g })
	return !others && g.wait(time.Now(), k.limits.Burst) > 0
}

// parts returns the parts of an update. The first one is light. It is empty if
// only the program changed.
func (k *writer) parts() []part {
	parts, heavy := make([]part, 1), []part(nil)
	for _, p := range k.pendingParts() {
		last := &parts[len(parts)-1]
		switch {
		case p.heavy:
			heavy = append(heavy, p)
		case len(last.owners) > 0 && last.cost+p.cost > k.limits.PartCost:
			parts = append(parts, p)
		default:
			last.owners, last.cost = append(last.owners, p.owners...), last.cost+p.cost
		}
	}
	slices.SortStableFunc(heavy, func(a, b part) int {
		return a.owners[0].Kept().written.Compare(b.owners[0].Kept().written)
	})
	return append(parts, heavy...)
}

// pendingParts returns the owners that changed since they were written, in the
// smallest parts between which no row moves.
func (k *writer) pendingParts() []part {
	k.dequeue()
	parts, total := make([]part, 0, len(k.pending)), 0
	for _, o := range k.pending {
		cost := k.source.Cost(o, o.Kept().have)
		parts = append(parts, part{[]Owner{o}, cost, cost > k.limits.HeavyCost})
		total += cost
	}
	if total <= min(k.limits.PartCost, k.limits.HeavyCost) {
		return parts // one part has all of them
	}
	return k.joinMoved(parts)
}

// joinMoved joins parts of one owner between which rows move.
func (k *writer) joinMoved(parts []part) []part {
	leaders := make([]int, len(parts))
	for i := range leaders {
		leaders[i] = i
	}
	leader := func(i int) int {
		for leaders[i] != i {
			leaders[i] = leaders[leaders[i]]
			i = leaders[i]
		}
		return i
	}
	k.source.Moves(k.pending, func(from, to int) { leaders[leader(to)] = leader(from) })
	var joined []part
	at := make(map[int]int) // positions in joined, by leader
	for i, p := range parts {
		n, ok := at[leader(i)]
		if !ok {
			at[leader(i)], joined = len(joined), append(joined, p)
			continue
		}
		to := &joined[n]
		to.owners, to.cost, to.heavy = append(to.owners, p.owners...), to.cost+p.cost, to.heavy || p.heavy
	}
	return joined
}

// ThreadTimeOf calls f and returns its CPU time.
func ThreadTimeOf(f func() error) (time.Duration, error) {
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
