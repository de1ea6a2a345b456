// Package share divides limited things among namespaces, so that no namespace
// takes what the others need. It does not know what the things are.
//
// Both [Limit], for things that are held, and [Rate], for things that are used
// up, have one rule: a namespace can have as much as is left for all others. A
// namespace alone gets half of a limit. While n namespaces want all they can
// get, each of them gets about 1/(n+1), and the same part is left for the next
// one. No namespace has to be known in advance, and nothing is taken away from
// one. The rule is known from the buffers of switches: A. K. Choudhury and
// E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet
// switches", 1998.
//
// [Part] divides things when all wishes are known at once. [Recent] keeps the
// last things of all namespaces, and forgets those of the one that has most.
package share

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Fits reports whether a namespace that has some things can have n more of
// those that are left.
func Fits(has, n, left int) bool { return has+n <= left }

// Limit divides a number of things that namespaces hold.
type Limit struct {
	left int
	held map[string]int // by namespace; more than 0
}

// NewLimit returns the limit of a number of things.
func NewLimit(n int) *Limit { return &Limit{left: n, held: make(map[string]int)} }

// Take takes n things for a namespace. It returns false, and takes nothing, if
// these are more than the share of the namespace.
func (l *Limit) Take(namespace string, n int) bool {
	if !Fits(l.held[namespace], n, l.left) {
		return false
	}
	l.add(namespace, n)
	return true
}

// Return returns n things that a namespace took.
func (l *Limit) Return(namespace string, n int) { l.add(namespace, -n) }

// Left returns how many things are left.
func (l *Limit) Left() int { return l.left }

func (l *Limit) add(namespace string, n int) {
	l.left -= n
	if l.held[namespace] += n; l.held[namespace] == 0 {
		delete(l.held, namespace)
	}
}

// Rate divides things that are used up and come again, such as the events of a
// second. It is a token bucket for all namespaces. A namespace can use a token
// if it recently used fewer than are left. So a namespace alone can use half of
// the burst at once, and then the whole rate.
type Rate struct {
	burst, perSecond float64
	left             float64 // tokens
	used             map[string]float64
	at               time.Time // of left and used
}

// NewRate returns a rate of tokens, with a burst of at least 1.
func NewRate(burst int, perSecond float64) *Rate {
	return &Rate{burst: float64(burst), perSecond: perSecond, left: float64(burst), used: make(map[string]float64)}
}

// forgotten is the number of recently used tokens below which a namespace is
// forgotten. All namespaces together use at most 1.5 bursts, so that at most
// 30 times the burst are known.
const forgotten = 0.05

// Use uses a token. It returns false if this is more than the share of the
// namespace.
func (r *Rate) Use(namespace string, now time.Time) bool { return r.UseSome(namespace, 1, now) }

// UseSome uses n tokens, at most half of the burst, or none.
func (r *Rate) UseSome(namespace string, n float64, now time.Time) bool {
	r.pass(now)
	if n = min(n, r.burst/2); r.used[namespace]+n > r.left {
		return false
	}
	r.left -= n
	r.used[namespace] += n
	return true
}

// Charge uses n tokens that a namespace has used already, also more than are
// left.
func (r *Rate) Charge(namespace string, n float64, now time.Time) {
	r.pass(now)
	r.left -= n
	r.used[namespace] += n
}

// pass lets time pass: tokens come again, and half a burst later, 1/e of the
// used ones is left. The decay is proportional, so that a namespace which
// always wants a token gets the whole rate while it is alone.
func (r *Rate) pass(now time.Time) {
	seconds := now.Sub(r.at).Seconds()
	if seconds < r.burst/r.perSecond/1000 { // do not visit all namespaces each time
		return
	}
	r.at = now
	r.left = min(r.left+seconds*r.perSecond, r.burst)
	rest := math.Exp(-seconds * r.perSecond / (r.burst / 2))
	for namespace, n := range r.used {
		r.used[namespace] = n * rest
	}
	maps.DeleteFunc(r.used, func(_ string, n float64) bool { return n < forgotten })
}

// Part returns the most that each one may have if all get at most this, and
// together at most max. Who wants less gets all of it.
func Part(max int, wanted []int) int {
	wanted = slices.Sorted(slices.Values(wanted))
	for i, n := range wanted {
		if equal := max / (len(wanted) - i); n > equal {
			return equal
		}
		max -= n
	}
	return math.MaxInt
}
