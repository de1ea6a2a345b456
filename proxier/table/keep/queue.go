package keep

import (
	"container/heap"
	"slices"
	"time"
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
