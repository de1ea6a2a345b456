// Package checker checks whether TCP endpoints of Services accept connections,
// for nodes on which no kubelet does so. It learns from the commits of tables
// which endpoints Services with a cluster.HealthCheck have, sends half-open
// probes to them (see package probe), and passes those that are unhealthy to
// the tables. A commit of a Service without a health check costs nothing.
//
// Nothing is stored: all endpoints are healthy at the start. If the API or a
// manifest changes a Service, what is known about its other endpoints stays.
package checker

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/eject/probe"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

const (
	// actGap is the minimum time between two acts. In each, burst checks are
	// sent at most, also after the process could not run for some time.
	actGap = 100 * time.Millisecond
	burst  = maxChecks / int(time.Second/actGap)
	// queryTimeout is how long a question to a table may take, busyPause the
	// time until it is asked again.
	queryTimeout = time.Second
	busyPause    = time.Second
	// summaryPeriod is the minimum time between two summaries.
	summaryPeriod = time.Second
)

// Config is the configuration of a Checker.
type Config struct {
	// Query calls a function with the table of a family, in turn with its
	// syncs. Sync requests a sync.
	Query func(context.Context, nft.Family, func(*table.Table) error) error
	Sync  func(nft.Family)
	// Metrics gets the metrics of the Checker.
	Metrics *metric.Set
}

// Checker checks endpoints.
type Checker struct {
	config   Config
	schedule *schedule
	checks   *prometheus.CounterVec
	summary  atomic.Pointer[Summary]
	acted    time.Time // the last act
	summed   time.Time // the last summary

	mu sync.Mutex // guards the fields below
	// known are the service ports with a health check as of the last commit.
	// changes are those that changed since the last act.
	known   map[eject.Port]struct{}
	changes map[eject.Port]change
	replies []reply // since the last act
	news    chan struct{}
}

// change is a service port after a commit.
type change struct {
	check     *cluster.HealthCheck // nil: not checked any more
	endpoints []netip.AddrPort
}

// reply is what came back for a check.
type reply struct {
	*target
	probe.Reply
}

// Results of checks, for the metric.
const (
	passed  = "passed"
	failed  = "failed"
	notSent = "not-sent"
)

// New returns a Checker.
func New(config Config) *Checker {
	c := &Checker{
		config: config, schedule: newSchedule(), known: make(map[eject.Port]struct{}),
		changes: make(map[eject.Port]change), news: make(chan struct{}, 1),
		checks: config.Metrics.LabeledCounter("nftproxy_health_checks_total",
			"Health checks of endpoints, by result.", "result", passed, failed, notSent),
	}
	c.summary.Store(new(Summary))
	return c
}

// Summary describes the checks, as of about a second ago. Any goroutine can
// call it.
func (c *Checker) Summary() Summary { return *c.summary.Load() }

// Observe is called with each commit of a table. It does not block.
func (c *Checker) Observe(commit *table.Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range commit.Changes {
		plan := cmp.Or(one.After, one.Before)
		if plan == nil || plan.Port.Protocol != cluster.TCP {
			continue
		}
		port := eject.Port{Family: commit.Family, PortName: plan.Name()}
		var now change
		if one.After != nil {
			now.check = one.After.Service.HealthCheck
		}
		if _, known := c.known[port]; now.check == nil && !known {
			continue
		}
		delete(c.known, port)
		if now.check != nil {
			now.endpoints = endpointsOf(one.After)
			c.known[port] = struct{}{}
		}
		c.changes[port] = now
	}
	if len(c.changes) > 0 {
		c.wake()
	}
}

// endpointsOf returns the endpoints that a service port uses while none of them
// is ejected, sorted.
func endpointsOf(p *ruleset.Plan) []netip.AddrPort {
	forCluster, forLocal := p.Usable()
	all := slices.Concat(forCluster, forLocal)
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}

// wake makes Run act.
func (c *Checker) wake() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	timer := time.NewTimer(actGap)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.news:
		case <-timer.C:
		}
		if wait := actGap - time.Since(c.acted); wait > 0 {
			timer.Reset(wait)
			continue
		}
		next := c.act(ctx)
		c.acted = time.Now()
		if timer.Stop(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// act does what is due, and returns the time of the next act, zero if only news
// lead to one.
func (c *Checker) act(ctx context.Context) (next time.Time) {
	now := time.Now()
	c.takeNews(now)
	c.send(ctx, c.schedule.take(now, burst))
	next = c.schedule.next()
	if !c.apply(ctx) {
		if again := now.Add(busyPause); next.IsZero() || again.Before(next) {
			next = again
		}
	}
	if now.Sub(c.summed) >= summaryPeriod || next.IsZero() {
		all := c.schedule.summary()
		c.summary.Store(&all)
		c.summed = now
	}
	return next
}

// takeNews passes changes and replies to the schedule.
func (c *Checker) takeNews(now time.Time) {
	c.mu.Lock()
	changes, replies := c.changes, c.replies
	c.changes, c.replies = make(map[eject.Port]change), nil
	c.mu.Unlock()
	for _, r := range replies {
		c.done(now, r.target, r.Reply)
	}
	for port, change := range changes {
		c.schedule.set(port, change.check, change.endpoints)
	}
}

// done records what came back for a check.
func (c *Checker) done(now time.Time, t *target, r probe.Reply) {
	result := failed
	switch r {
	case probe.Accepted:
		result = passed
	case probe.NotSent:
		result = notSent
	}
	c.checks.WithLabelValues(result).Inc()
	c.schedule.done(now, t, r)
}

// send sends checks, except to the cluster's infrastructure.
func (c *Checker) send(ctx context.Context, due []*target) {
	families := make(map[nft.Family][]*target)
	for _, t := range due {
		f := nft.FamilyOf(t.addr.Addr())
		families[f] = append(families[f], t)
	}
	for f, all := range families {
		forbidden := make([]bool, len(all))
		err := c.query(ctx, f, func(t *table.Table) error {
			for i := range all {
				forbidden[i] = t.IsInfrastructure(all[i].addr)
			}
			return nil
		})
		for i, t := range all {
			if err != nil || forbidden[i] {
				c.done(time.Now(), t, probe.NotSent)
				continue
			}
			probe.Ask(t.addr, t.service.check.Timeout(), func(r probe.Reply) { c.replied(t, r) })
		}
	}
}

// replied records what came back for a check, for the next act.
func (c *Checker) replied(t *target, r probe.Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies = append(c.replies, reply{t, r})
	c.wake()
}

// apply passes unhealthy endpoints to the tables. It returns false if a table
// is busy, which gets them with a later act.
func (c *Checker) apply(ctx context.Context) (all bool) {
	busy := make(map[nft.Family]bool)
	for port := range c.schedule.changed {
		if busy[port.Family] {
			continue
		}
		unhealthy := c.schedule.unhealthy(port)
		err := c.query(ctx, port.Family, func(t *table.Table) error {
			if t.SetUnhealthy(port.PortName, unhealthy) {
				c.config.Sync(port.Family)
			}
			return nil
		})
		if busy[port.Family] = err != nil; err != nil {
			klog.V(2).InfoS("Failed to pass unhealthy endpoints to a table, retrying",
				"servicePort", port, "err", err)
			continue
		}
		delete(c.schedule.changed, port)
	}
	return len(c.schedule.changed) == 0
}

func (c *Checker) query(ctx context.Context, f nft.Family, ask func(*table.Table) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return c.config.Query(ctx, f, ask)
}
