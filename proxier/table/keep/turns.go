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

// Owners that changed wait in a queue, by account. A sync serves the account
// first whose next owner ends first: the one with the lowest sum of the time
// that it was served and the time that its next owner takes. So the owner of
// one account waits neither for the many owners of another one, nor for a heavy
// owner of each of many others:
//
//	Touch ─► Account.waiting ─► part: some owners of the accounts that end first
//	                              │ one transaction, whose CPU time is charged
//	                              ▼
//	                            Account.served, Account.debt
//
// In this order alone, heavy owners would wait as long as there are many
// accounts with light ones. While a heavy owner waits, the others therefore get
// at most lightShare times its CPU time before it.
//
// A sync begins no part after Limits.Time. What is left waits for the next
// sync, which is due at once (see Keeper.Next), and which takes new changes
// first. An account that took more than Limits.Burst for changes of what it had
// written before waits until it has used 1/paceShare of a core on average.

// Account measures the work for owners that wait for each other, such as the
// service ports of a namespace. The zero Account is ready for use. Its owners
// hold it by reference.
type Account struct {
	// served is the CPU time of the parts of the account, comparable with other
	// accounts that wait: one that begins to wait gets at least queue.clock.
	// ahead is the estimated time of the part that is being made, next that of
	// the owner that follows, and nextCost its cost.
	served, ahead, next time.Duration
	nextCost            int
	// debt is the CPU time that the account took until a time, less its share
	// of the time that has passed. full is the time that its owners took when
	// they were last written.
	debt, full time.Duration
	at         time.Time

	waiting []Owner // in order of Touch, from begin on; may contain others
	begin   int
}

const (
	// paceShare is the part of a core that an account has after Limits.Burst.
	paceShare = 4
	// lightShare is the CPU time of light owners before a heavy one, in units
	// of its own CPU time.
	lightShare = 4
)

// wait returns how long the account has to wait.
func (a *Account) wait(now time.Time, burst time.Duration) time.Duration {
	return max(0, a.debt-now.Sub(a.at)/paceShare-burst-a.full) * paceShare
}

// charge records the CPU time of an owner.
func (a *Account) charge(k *Kept, took time.Duration, now time.Time) {
	a.pay(took, now)
	a.setTook(k, took)
}

// Charge records CPU time that the Source took for the owners of an account
// before it touched them.
func (a *Account) Charge(took time.Duration) { a.pay(took, time.Now()) }

// pay records CPU time.
func (a *Account) pay(took time.Duration, now time.Time) {
	a.served += took
	a.debt = max(0, a.debt-now.Sub(a.at)/paceShare) + took
	a.at = now
}

// setTook records how long an owner takes once: no time if the kernel has
// nothing of it.
func (a *Account) setTook(k *Kept, took time.Duration) {
	if k.have == nil {
		took = 0
	}
	a.full += took - k.took
	k.took = took
}

// finish returns the time that orders accounts: served after the next owner.
func (a *Account) finish() time.Duration { return a.served + a.ahead + a.next }

// since returns when the owner that waits longest began to wait.
func (a *Account) since() time.Time {
	if o := a.first(); o != nil {
		return o.Kept().touched
	}
	return time.Time{}
}

// Owes reports whether the account has to pay for earlier parts.
func (a *Account) Owes(now time.Time) bool { return a.debt > now.Sub(a.at)/paceShare }

// first returns the owner that waits longest, nil if none waits.
func (a *Account) first() Owner {
	for ; a.begin < len(a.waiting); a.begin++ {
		o := a.waiting[a.begin]
		kept := o.Kept()
		if kept.pending && !kept.taken {
			return o
		}
		kept.queued = false
	}
	return nil
}

// queue has the accounts whose owners wait.
type queue struct {
	accounts []*Account
	clock    time.Duration // served of the account that was served last
	light    time.Duration // CPU time of light parts while a heavy owner waits
	rate     float64       // nanoseconds of CPU time for a cost of 1
}

// firstRate is the rate before the first part.
const firstRate = 1500

// add adds an owner that changed.
func (q *queue) add(o Owner) {
	a := o.Account()
	if len(a.waiting) == 0 {
		a.served = max(a.served, q.clock)
		q.accounts = append(q.accounts, a)
	}
	a.waiting = append(a.waiting, o)
}

// compact removes the owners that do not wait any more.
func (q *queue) compact() {
	q.accounts = slices.DeleteFunc(q.accounts, func(a *Account) bool {
		if a.first() == nil {
			a.waiting, a.begin = nil, 0
			return true
		}
		if a.begin > len(a.waiting)/2 {
			a.waiting, a.begin = slices.Clone(a.waiting[a.begin:]), 0
		}
		return false
	})
	if len(q.accounts) == 0 {
		q.accounts = nil
	}
}

// turns are the accounts that can be served now, a heap with the one first
// whose next owner ends first.
type turns []*Account

func (q *queue) turns(now time.Time, burst time.Duration, cost func(Owner) int) turns {
	var t turns
	for _, a := range q.accounts {
		if a.first() != nil && a.wait(now, burst) == 0 {
			a.served = max(a.served, q.clock) // others were served while it had debt
			q.estimate(a, cost)
			t = append(t, a)
		}
	}
	heap.Init(&t)
	return t
}

// estimate estimates the CPU time of the next owner of an account.
func (q *queue) estimate(a *Account, cost func(Owner) int) {
	a.nextCost = 0
	if o := a.first(); o != nil {
		a.nextCost = cost(o)
	}
	a.next = time.Duration(float64(a.nextCost) * q.rate)
}

// overdue returns the index of the account whose heavy owner must be served
// before light ones, negative if there is none. heavy is the highest cost of a
// light owner.
func (q *queue) overdue(t turns, heavy int) int {
	first := -1
	for i, a := range t {
		if a.nextCost > heavy && (first < 0 || t.Less(i, first)) {
			first = i
		}
	}
	switch {
	case first < 0:
		q.light = 0
	case q.light < lightShare*t[first].next:
		return -1
	}
	return first
}

func (t turns) Len() int      { return len(t) }
func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *turns) Push(a any)   { *t = append(*t, a.(*Account)) }
func (t turns) Less(i, j int) bool {
	a, b := t[i].finish(), t[j].finish()
	return a < b || a == b && t[i].since().Before(t[j].since())
}

func (t *turns) Pop() any {
	last := len(*t) - 1
	a := (*t)[last]
	*t = (*t)[:last]
	return a
}

// Delay returns how long the source should collect further changes of the
// owners of an account: while one of them has to wait.
func (k *Keeper) Delay(a *Account) time.Duration {
	if a.first() == nil {
		return 0
	}
	return a.wait(time.Now(), k.limits.Burst)
}

// Wait describes an account whose owners wait for their turns.
type Wait struct {
	First  Owner // which waits longest
	Since  time.Time
	Owners int // at most
}

// waits returns the accounts whose owners wait.
func (q *queue) waits() (all []Wait) {
	for _, a := range q.accounts {
		if first := a.first(); first != nil {
			all = append(all, Wait{first, a.since(), len(a.waiting) - a.begin})
		}
	}
	return all
}

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

// charge charges the CPU time of a part to the accounts of its owners.
func (k *Keeper) charge(p part, used time.Duration) {
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
func (k *Keeper) nextPart(t *turns) (p part) {
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
func (k *Keeper) takeFrom(a *Account, p *part, limit int) {
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
func (k *Keeper) cost(o Owner) int { return max(1, k.source.Cost(o, o.Kept().have)) }

// addRing adds an owner to a part, and the owners that must be written with it
// because rows move between them.
func (k *Keeper) addRing(p *part, first Owner) {
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

// Touch records that the content of an owner may have changed.
func (k *Keeper) Touch(o Owner) {
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
func (k *Keeper) TouchProgram() { k.programChanged, k.unsynced = true, true }

// retry makes the next contents of owners the wanted ones: of those that are
// held back until now, and of those that changed. all stands for those that are
// held back longer, too.
func (k *Keeper) retry(all bool) {
	now := time.Now()
	for o := range k.state.failing {
		if kept := o.Kept(); kept.HeldBack() && (all || !now.Before(kept.trouble.after)) {
			k.Touch(o)
		}
	}
	for o := range k.state.failing {
		if kept := o.Kept(); kept.HeldBack() && kept.pending {
			k.touchTogether(o)
		}
	}
	for o := range k.state.failing {
		if kept := o.Kept(); kept.pending {
			kept.trouble.instead = theWanted
		}
	}
}

// touchTogether touches the owners between which and o rows move. Otherwise one
// of them would be written without these rows, as if it had not failed, or give
// them up before the other one is tried again.
func (k *Keeper) touchTogether(o Owner) {
	k.source.Together(o, func(other Owner, _ bool) {
		if !other.Kept().pending {
			k.Touch(other)
			k.touchTogether(other)
		}
	})
}
