package checker

import (
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/eject/probe"
	"github.com/nftproxy/nftproxy/proxier/share"
)

// Limits of checks in a second. If Services want more, their periods become
// longer. While namespaces want more than meanChecks, each gets the same part.
// It is less than maxChecks, so that checks that are due do not wait for long.
const (
	maxChecks           = 250
	meanChecks          = 200
	maxChecksPerService = 50
)

// spread is the part of a period by which the time of a check differs at
// random, so that checks do not meet.
const spread = 0.1

// schedule decides when endpoints are checked, and which are unhealthy. It
// performs no I/O and has no clock. Only one goroutine may use it at a time.
type schedule struct {
	services map[cluster.ServiceName]*service
	queue    queue
	// stale reports whether the periods must be computed again. fresh are the
	// targets whose first check follows from that.
	stale bool
	fresh []*target
	// changed are the service ports whose unhealthy endpoints a table may not
	// have.
	changed map[eject.Port]struct{}
	unsent  int            // targets whose last check was not sent
	random  func() float64 // from 0 to 1
}

func newSchedule() *schedule {
	return &schedule{
		services: make(map[cluster.ServiceName]*service), changed: make(map[eject.Port]struct{}),
		random: rand.Float64,
	}
}

// service is a Service whose endpoints are checked. An endpoint that several of
// its ports use is checked once.
type service struct {
	name    cluster.ServiceName
	check   cluster.HealthCheck
	ports   map[eject.Port][]netip.AddrPort // sorted
	targets map[netip.AddrPort]*target
	// period is the time between two checks of an endpoint. It can be longer
	// than the annotation asks for.
	period time.Duration
}

// target is an endpoint of a Service. It is in the queue, unless it is fresh or
// a check waits for its answer. It is healthy until enough checks have failed.
type target struct {
	service *service
	addr    netip.AddrPort
	index   int       // in the queue, or outside
	due     time.Time // of the next check, or of the one that waits
	// row is the number of the last checks in a row that succeeded, or minus
	// the number of those that failed.
	row     int
	unsent  bool // the last check
	removed bool
	// ejection is zero while the endpoint is healthy.
	ejection cluster.Ejection
}

// outside is the index of a target that is not in the queue.
const outside = -1

// set sets the endpoints of a service port, sorted. Without any, or without a
// check, nothing of it is known any more. What is known about endpoints that
// stay does not change.
func (s *schedule) set(port eject.Port, check *cluster.HealthCheck, endpoints []netip.AddrPort) {
	before := s.unhealthy(port)
	svc := s.service(port.ServiceName)
	if delete(svc.ports, port); check != nil && len(endpoints) > 0 {
		s.stale = s.stale || svc.check != *check
		svc.check, svc.ports[port] = *check, endpoints
	}
	s.setTargets(svc)
	if len(svc.targets) == 0 {
		delete(s.services, svc.name)
	}
	if len(before)+len(s.unhealthy(port)) > 0 { // the table may have other ones
		s.changed[port] = struct{}{}
	}
}

// service returns a Service, and creates it if necessary.
func (s *schedule) service(name cluster.ServiceName) *service {
	svc := s.services[name]
	if svc == nil {
		svc = &service{
			name: name, ports: make(map[eject.Port][]netip.AddrPort), targets: make(map[netip.AddrPort]*target),
		}
		s.services[name] = svc
	}
	return svc
}

// setTargets makes the targets of a Service those of its ports.
func (s *schedule) setTargets(svc *service) {
	used := make(map[netip.AddrPort]struct{})
	for _, endpoints := range svc.ports {
		for _, addr := range endpoints {
			used[addr] = struct{}{}
			if svc.targets[addr] == nil {
				t := &target{service: svc, addr: addr, index: outside}
				svc.targets[addr], s.stale, s.fresh = t, true, append(s.fresh, t)
			}
		}
	}
	for addr, t := range svc.targets {
		if _, ok := used[addr]; ok {
			continue
		}
		delete(svc.targets, addr)
		s.setUnsent(t, false)
		t.removed, s.stale = true, true
		if t.index != outside {
			heap.Remove(&s.queue, t.index)
		}
	}
}

func (s *schedule) setUnsent(t *target, unsent bool) {
	switch {
	case unsent && !t.unsent:
		s.unsent++
	case !unsent && t.unsent:
		s.unsent--
	}
	t.unsent = unsent
}

// part returns a random part of a duration.
func (s *schedule) part(d time.Duration) time.Duration { return time.Duration(s.random() * float64(d)) }

// setPeriods computes the periods, so that there are not more checks than the
// limits allow on average.
func (s *schedule) setPeriods(now time.Time) {
	if !s.stale {
		return
	}
	s.stale = false
	const precision = 1000 // of the numbers of checks in a second
	wanted := make(map[string]int)
	perSecond := func(svc *service, period time.Duration) int {
		return max(1, int(precision*time.Duration(len(svc.targets))*time.Second/period))
	}
	least := func(svc *service) time.Duration {
		return max(svc.check.Period(), time.Duration(len(svc.targets))*time.Second/maxChecksPerService)
	}
	for _, svc := range s.services {
		wanted[svc.name.Namespace] += perSecond(svc, least(svc))
	}
	all := make([]int, 0, len(wanted))
	for _, n := range wanted {
		all = append(all, n)
	}
	most := share.Part(precision*meanChecks, all)
	for _, svc := range s.services {
		period := least(svc)
		if n := wanted[svc.name.Namespace]; n > most {
			period = time.Duration(float64(period) * float64(n) / float64(most))
		}
		if period < svc.period {
			s.hasten(now, svc, period)
		}
		svc.period = period
	}
	for _, t := range s.fresh {
		if !t.removed {
			t.due = now.Add(s.part(t.service.period))
			heap.Push(&s.queue, t)
		}
	}
	s.fresh = nil
}

// hasten makes checks sooner that are due later than a new period.
func (s *schedule) hasten(now time.Time, svc *service, period time.Duration) {
	for _, t := range svc.targets {
		if t.index != outside && t.due.Sub(now) > period {
			t.due = now.Add(s.part(period))
			heap.Fix(&s.queue, t.index)
		}
	}
}

// take returns endpoints that must be checked now, at most a number. Each needs
// a call of done.
func (s *schedule) take(now time.Time, most int) (due []*target) {
	s.setPeriods(now)
	for len(due) < most && len(s.queue) > 0 && !s.queue[0].due.After(now) {
		t := heap.Pop(&s.queue).(*target)
		t.due = now
		due = append(due, t)
	}
	return due
}

// next returns the time of the next check, zero if there is none.
func (s *schedule) next() time.Time {
	if len(s.queue) == 0 {
		return time.Time{}
	}
	return s.queue[0].due
}

// done records what came back for a check. A check that was not sent, because
// of this node or because the address is not allowed, proves nothing.
func (s *schedule) done(now time.Time, t *target, reply probe.Reply) {
	if t.removed {
		return
	}
	period := t.service.period
	t.due = t.due.Add(period + time.Duration(spread*(2*s.random()-1)*float64(period)))
	if t.due.Before(now) {
		t.due = now
	}
	heap.Push(&s.queue, t)
	if s.setUnsent(t, reply == probe.NotSent); t.unsent {
		return
	}
	if reply == probe.Accepted {
		t.row = max(t.row, 0) + 1
	} else {
		t.row = min(t.row, 0) - 1
	}
	check := &t.service.check
	switch unhealthy := t.ejection.Unhealthy(); {
	case !unhealthy && -t.row >= check.FailureThreshold:
		t.ejection = cluster.Ejection{Endpoint: t.addr, Since: now, Checks: -t.row, Reply: string(reply)}
	case unhealthy && t.row >= check.SuccessThreshold:
		t.ejection = cluster.Ejection{}
	default:
		return
	}
	for port, endpoints := range t.service.ports {
		if _, uses := slices.BinarySearchFunc(endpoints, t.addr, netip.AddrPort.Compare); uses {
			s.changed[port] = struct{}{}
		}
	}
}

// unhealthy returns the unhealthy endpoints of a service port, sorted.
func (s *schedule) unhealthy(port eject.Port) (all []cluster.Ejection) {
	svc := s.services[port.ServiceName]
	if svc == nil {
		return nil
	}
	for _, addr := range svc.ports[port] {
		if e := svc.targets[addr].ejection; e.Unhealthy() {
			all = append(all, e)
		}
	}
	return all
}

// Summary describes the checks.
type Summary struct {
	// Endpoints is the number of endpoints that are checked, Unsent the number
	// of those whose last check was not sent, because of this node or because
	// the address is not allowed.
	Endpoints int `json:"endpoints"`
	Unsent    int `json:"unsent,omitempty"`
	// Slowed is the number of endpoints that are checked more rarely than they
	// should be, PeriodSeconds the longest period of them.
	Slowed        int     `json:"slowed,omitempty"`
	PeriodSeconds float64 `json:"periodSeconds,omitempty"`
}

func (s *schedule) summary() Summary {
	all := Summary{Unsent: s.unsent}
	for _, svc := range s.services {
		all.Endpoints += len(svc.targets)
		if svc.period > svc.check.Period() {
			all.Slowed += len(svc.targets)
			all.PeriodSeconds = max(all.PeriodSeconds, svc.period.Seconds())
		}
	}
	return all
}

// queue is a heap of targets by the time of their next check.
type queue []*target

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(t any) {
	t.(*target).index = len(*q)
	*q = append(*q, t.(*target))
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q, t.index = (*q)[:last], outside
	return t
}
