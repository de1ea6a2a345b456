package keep

import (
	"container/heap"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// part is the owners of a transaction. An owner is written by one transaction,
// so packets see its old or its new state. Owners between which a row moves are
// in one part.
type part struct {
	owners []Owner
	costs  []int // of the owners
	cost   int
	heavy  bool // a heavy owner, and those that must be written with it
}

// quantum is the cost of the owners of one account that a part takes before it
// turns to another account. A part can have this cost at any rate, because a
// cheaper one does not measure the rate.
const quantum = 1000

// updateInParts writes what changed, in parts, until everything is written or
// Limits.Time has passed. It writes at least one part.
func (k *writer) updateInParts() error {
	start, rewrites := time.Now(), k.Rewrites
	turns := k.queue.turns(start, k.limits.Burst, k.cost)
	for {
		if err := k.take(k.nextPart(&turns)); err != nil {
			return err
		}
		if k.Rewrites != rewrites { // everything is written
			return nil
		}
		if len(turns) == 0 || time.Since(start) >= k.limits.Time {
			break
		}
	}
	k.failures, k.unsynced = 0, false
	return k.finishHeld()
}

// take writes the changes of a part and charges its CPU time, which does not
// depend on other programs, without the time of a rewrite that follows. What
// was not written waits again.
func (k *writer) take(p part) error {
	of := extentOf(p.owners)
	if p.heavy {
		of = heavyOwner
	}
	rewriting := k.rewriting
	used, err := ThreadTimeOf(func() error { return k.update(p.owners, of) })
	k.charge(p, max(0, used-(k.rewriting-rewriting)))
	for _, o := range p.owners {
		kept := o.Kept()
		kept.taken = false
		if kept.pending && !kept.queued {
			kept.queued = true
			k.queue.add(o)
		}
	}
	k.queue.compact()
	return err
}

// charge charges the CPU time of a part to the accounts of its owners.
func (k *writer) charge(p part, used time.Duration) {
	now := time.Now()
	if k.queue.light += used; p.heavy {
		k.queue.light = 0
	}
	for i, o := range p.owners {
		a := o.Account()
		a.ahead = 0
		a.charge(o.Kept(), used*time.Duration(p.costs[i])/time.Duration(p.cost), now)
	}
	if p.cost >= quantum {
		k.queue.rate += (float64(used)/float64(p.cost) - k.queue.rate) / 4
	}
}

// nextPart makes the next part. It is empty if nothing waits.
func (k *writer) nextPart(t *turns) (p part) {
	if len(*t) == 0 {
		return p
	}
	if i := k.queue.overdue(*t, k.limits.HeavyCost); i >= 0 {
		a := (*t)[i]
		k.takeFrom(a, &p, k.limits.PartCost)
		if k.queue.estimate(a, k.cost); a.nextCost == 0 {
			*t = slices.Delete(*t, i, i+1)
		}
		return p
	}
	heap.Init(t) // the last part was charged
	k.queue.clock = max(k.queue.clock, (*t)[0].served)
	latest := (*t)[0].finish() + k.limits.Spread
	limit := min(k.limits.PartCost, max(quantum, int(float64(k.limits.PartTime)/k.queue.rate)))
	var aside []*Account // whose next owner is heavy
	for len(*t) > 0 && !p.heavy && p.cost < limit {
		a := (*t)[0]
		if a.finish() > latest {
			break
		}
		before := p.cost
		k.takeFrom(a, &p, limit)
		k.queue.estimate(a, k.cost)
		a.ahead += time.Duration(float64(p.cost-before) * k.queue.rate)
		switch {
		case a.first() == nil:
			heap.Pop(t)
		case p.cost == before:
			aside = append(aside, heap.Pop(t).(*Account))
		default:
			heap.Fix(t, 0)
		}
	}
	for _, a := range aside {
		heap.Push(t, a)
	}
	return p
}

// takeFrom adds owners of an account to a part.
func (k *writer) takeFrom(a *Account, p *part, limit int) {
	end := min(p.cost+quantum, limit)
	for o := a.first(); o != nil && p.cost < end; o = a.first() {
		begin, before := len(p.owners), p.cost
		k.addRing(p, o)
		heavy := p.cost-before > k.limits.HeavyCost
		if heavy && begin > 0 {
			for _, o := range p.owners[begin:] {
				o.Kept().taken = false
			}
			p.owners, p.costs, p.cost = p.owners[:begin], p.costs[:begin], before
			return
		}
		if p.heavy = heavy; heavy {
			return
		}
	}
}

// cost returns the cost of an owner.
func (k *writer) cost(o Owner) int { return max(1, k.source.Cost(o, o.Kept().have)) }

// addRing adds an owner to a part, and the owners that must be written with it
// because rows move between them.
func (k *writer) addRing(p *part, first Owner) {
	add := func(o Owner) {
		if kept := o.Kept(); kept.pending && !kept.taken {
			kept.taken = true
			p.owners = append(p.owners, o)
		}
	}
	add(first)
	for i := len(p.costs); i < len(p.owners); i++ {
		o := p.owners[i]
		cost := k.cost(o)
		p.costs, p.cost = append(p.costs, cost), p.cost+cost
		k.source.Together(o, func(other Owner, _ bool) { add(other) })
	}
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
		return 0, fmt.Errorf("CPU time of a thread: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
