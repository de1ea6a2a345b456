// Package ejector ejects endpoints that answer nothing. It finds the attempts
// of clients in connection tracking, sends probes, and passes the decisions of
// package eject to the tables. Package eject decides, package conntrack reads
// the entries, package probe sends the probes.
//
// # Cost
//
// A walk through connection tracking looks for unanswered attempts. If there
// are any, a second look follows after 0.3 s: an attempt that is in both is
// unanswered for that long. The period of walks follows the CPU time of first
// looks: at most 0.5 % of a core, and one in a second. Second looks and
// deletions, which only unanswered attempts cause, take at most as much on the
// average of a minute, and so do the looks for answers of suspects, of which
// each namespace has a share. While there is no attempt of that age, the tables
// are asked nothing.
//
// A walk reads at most maxRead attempts, so that a flood does not make walks
// rare: then it has a part of all attempts, and finds those of an endpoint in
// one of the next walks.
//
// In calm (see package calm), walks take a third of that at most, and one
// follows in 4 s. An attempt that is unanswered ends the calm.
package ejector

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/calm"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/eject/probe"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/share"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

const (
	// attemptAge is the time after which an attempt without an answer is
	// evidence. Answers of a living endpoint take less, even those from another
	// continent.
	attemptAge = 300 * time.Millisecond
	// minPeriod and maxPeriod limit the period of walks. It is walkShare times
	// the CPU time of a walk.
	minPeriod = time.Second
	maxPeriod = 2 * time.Minute
	walkShare = 200
	// minCalmPeriod and calmFactor limit the period in calm: it is at least
	// calmFactor times as long.
	minCalmPeriod = 4 * time.Second
	calmFactor    = 3
	// credit is the time of which second looks and deletions may take at once
	// what they may take on average: as much as walks. The same holds for looks
	// for answers of suspects. So an endpoint that dies is ejected without a
	// pause.
	credit = time.Minute
	// maxRead limits the attempts that a look reads, 1 µs of CPU time each.
	maxRead = 1 << 12
	// cleanDelay is the time after which the attempts to ejected endpoints are
	// deleted. The sync that makes the rules avoid them has ended by then; if
	// not, the next walk deletes them.
	cleanDelay = 100 * time.Millisecond
	// actGap is the minimum time between two acts, so that the results of many
	// probes cost one.
	actGap = 50 * time.Millisecond
	// sendPause is the time after which probes are sent that waited for a
	// table.
	sendPause = 200 * time.Millisecond
	// refreshPeriod is how long the answers of tables count.
	refreshPeriod = 2 * time.Second
	// queryTimeout is how long a question to a table may take.
	queryTimeout = time.Second
)

// Config is the configuration of an Ejector.
type Config struct {
	NodeName string
	Families []nft.Family
	// Query calls a function with the table of a family, in turn with its
	// syncs. Sync requests a sync.
	Query func(context.Context, nft.Family, func(*table.Table) error) error
	Sync  func(nft.Family)
	// Calm gets the unanswered attempts as signs of life. In calm, walks are
	// rarer.
	Calm *calm.State
	// Events receives warnings about service ports.
	Events cluster.EventRecorder
	// Metrics gets the metrics of the Ejector.
	Metrics *metric.Set
}

// Ejector ejects endpoints that answer nothing.
type Ejector struct {
	config   Config
	conn     *conntrack.Conn
	detector *eject.Detector
	results  chan probe.Outcome
	unsent   []eject.Probe
	blind    blindPorts
	probes   *prometheus.CounterVec
	walks    prometheus.Counter
	walkTime prometheus.Counter

	// first are the attempts of the first look of a walk, nil before it.
	first  map[attempt]struct{}
	cost   time.Duration // CPU time of the first look
	began  time.Time     // of the walk
	walkAt time.Time
	acted  time.Time // the last act
	asked  time.Time // the last question to the tables
	// period is that of walks. One that took long by chance makes it only twice
	// as long.
	period time.Duration
	// rested is the time from which what unanswered attempts cause may take CPU
	// time again.
	rested time.Time
	// looks is the CPU time of looks for answers, in milliseconds; narrow that
	// of the last one in which connections of one endpoint were listed.
	looks  *share.Rate
	narrow time.Duration
	// timeouts are those of TCP, as a table read them last. They are 0, which
	// stands for the kernel's defaults, without retries.
	timeouts nft.TimeoutPolicy
	// early reports whether the next walk takes place before its time.
	early bool
	// targets are those that the Detector knows.
	targets map[eject.Port]targets
	// ports are the service ports of the frontends with attempts in the last
	// walk.
	ports   map[netip.AddrPort]eject.Port
	cleanAt time.Time // zero if no attempts have to be deleted
	failing bool      // whether the last walk failed
}

// New returns an Ejector. It connects to the connection tracking of the calling
// thread's network namespace.
func New(config Config) (*Ejector, error) {
	conn, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	e := &Ejector{
		config: config, conn: conn, detector: eject.New(), results: make(chan probe.Outcome, 4*eject.MaxProbes),
		looks:   share.NewRate(int(credit.Milliseconds())/walkShare, 1000/walkShare),
		targets: make(map[eject.Port]targets), narrow: time.Millisecond,
		probes: config.Metrics.LabeledCounter("nftproxy_probes_total",
			"Probes of endpoints that did not answer clients, and of others for comparison, by result.",
			"result", string(eject.Answered), string(eject.Lost), string(eject.Unresolved), string(eject.Failed)),
		walks: config.Metrics.Counter("nftproxy_connection_walks_total",
			"Walks through connection tracking for attempts without an answer."),
		walkTime: config.Metrics.Counter("nftproxy_connection_walk_seconds_total",
			"CPU time of walks through connection tracking."),
	}
	return e, nil
}

// Close closes the connection to the kernel, after Run has returned.
func (e *Ejector) Close() error { return e.conn.Close() }

// Run works until ctx ends.
func (e *Ejector) Run(ctx context.Context) {
	timer := time.NewTimer(minPeriod)
	defer timer.Stop()
	disturbed := e.config.Calm.Disturbed()
	e.walkAt = time.Now().Add(minPeriod)
	for {
		select {
		case <-ctx.Done():
			return
		case <-disturbed:
			e.walkSooner(time.Now())
		case o := <-e.results:
			if o.Result == eject.Lost && !o.Control && probe.IsUnresolved(o.Addr.Addr()) {
				o.Result = eject.Unresolved
			}
			e.probes.WithLabelValues(string(o.Result)).Inc()
			e.detector.Probed(time.Now(), o.Probe, o.Result)
		case <-timer.C:
		}
		if !time.Now().Before(e.walkAt) {
			e.walk(ctx)
		}
		if soonest := e.acted.Add(actGap); time.Now().Before(soonest) {
			timer.Reset(time.Until(soonest))
			continue
		}
		next := e.act(ctx)
		e.acted = time.Now()
		timer.Reset(max(time.Until(next), 0))
	}
}

// act does what the Detector needs, and returns the time of the next act.
func (e *Ejector) act(ctx context.Context) (next time.Time) {
	e.refresh(ctx)
	now := time.Now()
	orders := e.detector.Next(now)
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	sooner(orders.Wake)
	if len(e.unsent) > 0 {
		sooner(now.Add(sendPause))
	}
	if !orders.Walk.IsZero() {
		e.walkEarly(orders.Walk)
	}
	e.send(ctx, orders.Probes)
	if len(orders.Looks) > 0 {
		sooner(e.look(ctx, orders.Looks))
	}
	e.apply(ctx)
	if !e.cleanAt.IsZero() && !now.Before(e.cleanAt) {
		e.cleanAt = time.Time{}
		e.clean(ctx)
	}
	sooner(e.cleanAt)
	sooner(e.walkAt)
	return next
}

// send sends probes, except to the cluster's infrastructure. Those of a family
// whose table is busy wait for the next act.
func (e *Ejector) send(ctx context.Context, probes []eject.Probe) {
	probes, e.unsent = append(e.unsent, probes...), nil
	for _, f := range e.config.Families {
		mine := slices.DeleteFunc(slices.Clone(probes), func(p eject.Probe) bool { return p.Family != f })
		if len(mine) == 0 {
			continue
		}
		forbidden := make([]bool, len(mine))
		err := e.query(ctx, f, func(t *table.Table) error {
			for i, p := range mine {
				forbidden[i] = t.IsInfrastructure(p.Addr)
			}
			return nil
		})
		if err != nil {
			e.unsent = append(e.unsent, mine...)
			continue
		}
		for i, p := range mine {
			if forbidden[i] {
				e.detector.Probed(time.Now(), p, eject.Failed)
			} else {
				probe.Send(p, e.results)
			}
		}
	}
}

// apply passes the ejections that changed to the tables. A table that is busy
// gets them with a later act.
func (e *Ejector) apply(ctx context.Context) {
	busy := make(map[nft.Family]bool)
	for _, p := range e.detector.Changed() {
		if busy[p.Family] {
			continue
		}
		var changed bool
		all, begun := e.detector.Ejections(p)
		err := e.query(ctx, p.Family, func(t *table.Table) error {
			if changed = t.SetEjections(p.PortName, all, begun); changed {
				e.config.Sync(p.Family)
			}
			return nil
		})
		if busy[p.Family] = err != nil; err != nil {
			klog.V(2).InfoS("Failed to pass ejections to a table, retrying",
				"servicePort", p, "err", err)
			continue
		}
		e.detector.Applied(p)
		if changed && slices.ContainsFunc(all, func(e cluster.Ejection) bool { return !e.OnTrial }) {
			e.cleanAt = time.Now().Add(cleanDelay)
		}
	}
	for _, p := range e.detector.Blinded() {
		if busy[p.Family] {
			continue
		}
		if err := e.reportBlind(ctx, p); err != nil {
			klog.V(2).InfoS("Failed to report that no endpoint answers probes", "err", err)
			busy[p.Family] = true
		}
	}
	e.blind.set(e.detector.Blind(time.Now()))
}

func (e *Ejector) query(ctx context.Context, f nft.Family, ask func(*table.Table) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return e.config.Query(ctx, f, ask)
}

// walk takes the first or the second look of a walk.
func (e *Ejector) walk(ctx context.Context) {
	if e.first != nil {
		var aged []attempt
		took, err := e.unanswered(ctx, func(a attempt) {
			if _, ok := e.first[a]; ok {
				aged = append(aged, a)
			}
		})
		e.charge(took)
		e.endWalk(ctx, aged, err)
		return
	}
	e.began = time.Now()
	e.walks.Inc()
	found := newSample()
	var err error
	e.cost, err = e.unanswered(ctx, found.add)
	if e.early {
		e.charge(e.cost)
	} else {
		e.walkTime.Add(e.cost.Seconds())
	}
	e.early = false
	if err != nil || len(found.attempts) == 0 {
		e.endWalk(ctx, nil, err)
		return
	}
	e.first, e.walkAt = found.attempts, e.began.Add(attemptAge)
}

// endWalk ends a walk, and passes the attempts that are old to the Detector.
func (e *Ejector) endWalk(ctx context.Context, aged []attempt, err error) {
	e.period = min(max(minPeriod, e.cost*walkShare), 2*e.period+minPeriod, maxPeriod)
	e.first = nil
	if e.report(err); err == nil {
		e.resolve(ctx, aged)
	}
	e.walkAt = e.nextWalk(time.Now())
	// What resolve took counts, too: if walks took all the CPU time, nothing
	// would be left for the looks at suspects.
	if len(aged) > 0 && e.walkAt.Before(e.rested) {
		e.walkAt = e.rested
	}
}

// walkSooner makes the next walk follow the last one as soon as on a node that
// is alert, unless a second look is due, or walks wait for CPU time.
func (e *Ejector) walkSooner(now time.Time) {
	if e.first == nil && !now.Before(e.rested) {
		e.walkAt = e.nextWalk(now)
	}
}

// walkEarly makes the next walk begin at a time, unless a second look is due.
// It waits for CPU time.
func (e *Ejector) walkEarly(at time.Time) {
	if at.Before(e.rested) {
		at = e.rested
	}
	if e.first == nil && at.Before(e.walkAt) {
		e.walkAt, e.early = at, true
	}
}

// nextWalk returns the time of the walk after the last one.
func (e *Ejector) nextWalk(now time.Time) time.Time {
	calm := min(max(minCalmPeriod, calmFactor*e.period), maxPeriod)
	return e.config.Calm.Next(now, e.began, e.period, calm)
}

// report logs the error of a walk, once until a walk succeeds.
func (e *Ejector) report(err error) {
	failing := err != nil && !errors.Is(err, context.Canceled)
	if failing && !e.failing {
		klog.ErrorS(err, "Failed to search connection tracking for attempts without an answer, retrying")
	}
	e.failing = failing
}

// unanswered calls each with the attempts to connect to endpoints of Services
// that have no answer. It returns the CPU time that it took.
func (e *Ejector) unanswered(ctx context.Context, each func(attempt)) (took time.Duration, err error) {
	s := conntrack.Selection{
		Protocol: unix.IPPROTO_TCP, Translated: true, Answer: conntrack.Unanswered, Limit: maxRead,
	}
	return keep.ThreadTimeOf(func() error {
		err := e.conn.Select(ctx, s, func(c conntrack.Connection) {
			if c.State == "SYN_SENT" {
				each(attempt{c.Client, c.Frontend, c.Endpoint, c.ID})
			}
		})
		return err
	})
}

// charge records CPU time that unanswered attempts caused.
func (e *Ejector) charge(took time.Duration) {
	e.walkTime.Add(took.Seconds())
	e.rested = restedAfter(e.rested, time.Now(), took)
}

// restedAfter returns the time from which more CPU time may be taken, after
// some was taken at now.
func restedAfter(last, now time.Time, took time.Duration) time.Time {
	if least := now.Add(-credit); last.Before(least) {
		last = least
	}
	return last.Add(took * walkShare)
}

// resolve passes attempts to the Detector, with the endpoints that their
// service ports use now.
func (e *Ejector) resolve(ctx context.Context, aged []attempt) {
	now := time.Now()
	e.ports = make(map[netip.AddrPort]eject.Port)
	frontends := make(map[netip.AddrPort]struct{})
	for _, a := range aged {
		frontends[a.frontend] = struct{}{}
	}
	e.ask(ctx, frontends)
	tries := make([]eject.Try, 0, len(aged))
	for _, a := range aged {
		if p, ok := e.ports[a.frontend]; ok && probe.Allowed(a.endpoint.Addr()) {
			e := eject.Endpoint{Port: p, Addr: a.endpoint}
			tries = append(tries, eject.Try{Endpoint: e, Client: a.client, ID: a.id})
		}
	}
	if len(tries) > 0 {
		e.config.Calm.Disturb(now)
	}
	e.detector.Tried(now, tries)
	if slices.ContainsFunc(tries, func(t eject.Try) bool { return e.detector.Ejected(t.Endpoint) }) {
		e.clean(ctx)
	}
}

// refresh makes the Detector forget endpoints that the API removed, if the last
// walk was long ago: they must get no probes.
func (e *Ejector) refresh(ctx context.Context) {
	if time.Since(e.asked) >= refreshPeriod {
		e.ask(ctx, nil)
	}
}

// ask asks the tables for the service ports of frontends, and for the endpoints
// of these and of those that the Detector knows.
func (e *Ejector) ask(ctx context.Context, frontends map[netip.AddrPort]struct{}) {
	for _, f := range e.config.Families {
		if err := e.resolveFamily(ctx, f, frontends); err != nil {
			klog.V(2).InfoS("Failed to ask a table for the endpoints of service ports", "err", err)
		}
	}
	e.asked = time.Now()
}

// targets are the endpoints of a plan.
type targets struct {
	plan *ruleset.Plan
	eject.Targets
}

// setTargets passes the endpoints that a service port uses to the Detector.
func (e *Ejector) setTargets(p eject.Port, u table.Usable) {
	t, known := e.targets[p]
	if !known || t.plan != u.Plan {
		t.plan = u.Plan
		t.Cluster, t.Local = u.Plan.Usable()
		e.targets[p] = t
	}
	e.detector.SetTargets(p, t.Targets, u.Ejected)
}

// resolveFamily asks a table (see ask).
func (e *Ejector) resolveFamily(ctx context.Context, f nft.Family, frontends map[netip.AddrPort]struct{}) error {
	asked := e.detector.Ports(f)
	var mine []netip.AddrPort
	for at := range frontends {
		if f.Of(at.Addr()) {
			mine = append(mine, at)
		}
	}
	if len(asked)+len(mine) == 0 {
		maps.DeleteFunc(e.targets, func(p eject.Port, _ targets) bool { return p.Family == f })
		return nil
	}
	found, all := make(map[netip.AddrPort]eject.Port), make(map[eject.Port]table.Usable)
	var timeouts nft.TimeoutPolicy
	err := e.query(ctx, f, func(t *table.Table) error {
		timeouts = t.Timeouts().TCP
		ports := make(map[eject.Port]struct{})
		for _, p := range asked {
			ports[p] = struct{}{}
		}
		for _, at := range mine {
			if name, ok := t.Ejectable(at); ok {
				p := eject.Port{Family: f, PortName: name}
				ports[p], found[at] = struct{}{}, p
			}
		}
		for p := range ports {
			all[p], _ = t.Usable(p.PortName)
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.timeouts = timeouts
	maps.DeleteFunc(e.targets, func(p eject.Port, _ targets) bool {
		_, known := all[p]
		return p.Family == f && !known
	})
	for p, u := range all {
		e.setTargets(p, u)
	}
	for at, p := range found {
		e.ports[at] = p
	}
	return nil
}
