package proxier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/calm"
	"github.com/nftproxy/nftproxy/proxier/checker"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ejector"
	"github.com/nftproxy/nftproxy/proxier/follow"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/localhost"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Proxier serves Services on this node. The On methods have the names and the
// parameters of kube-proxy's; any goroutine can call them. SyncLoop makes the
// changes effective.
type Proxier struct {
	*shared
	families  families
	ejector   *ejector.Ejector // nil unless endpoints are ejected
	sink      cluster.Sinks    // all tables; only before SyncLoop
	addresses *localAddresses
	pulse     *pulse
	closers   []io.Closer // of the connections to the kernel
}

// NewProxier returns a Proxier for one address family. It works in the network
// namespace of the calling thread.
func NewProxier(config Config, family nft.Family) (*Proxier, error) {
	return newProxier(config, family)
}

// NewDualStackProxier returns a Proxier for IPv4 and IPv6, each with a table
// and transactions of its own. It works in the network namespace of the calling
// thread.
func NewDualStackProxier(config Config) (*Proxier, error) {
	return newProxier(config, nft.IPv4, nft.IPv6)
}

func newProxier(config Config, families ...nft.Family) (*Proxier, error) {
	p, err := assemble(config, families...)
	if err != nil {
		return nil, err
	}
	if err := p.setUp(families); err != nil {
		p.Close()
		return nil, err
	}
	if config.noLoopback() {
		klog.InfoS("NodePorts do not listen on loopback addresses",
			"reason", "the feature gate KubeProxyNFTablesLocalhostNodePorts is disabled")
	}
	return p, nil
}

// assemble returns a Proxier that is not connected to the kernel yet.
func assemble(config Config, families ...nft.Family) (*Proxier, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if config.NoTimeouts {
		config.Rules.RetryAfter = 0
	}
	p := &Proxier{shared: &shared{
		config:    &config,
		events:    newEventLog(config.Events),
		node:      newNodeTracker(&config),
		metrics:   newMetrics(families...),
		history:   history.New(),
		calm:      calm.New(time.Now()),
		patience:  queryPatience,
		allSynced: make(chan struct{}),
	}}
	if config.HealthChecks {
		p.checker = checker.New(checker.Config{Query: p.Query, Sync: p.requestSync, Metrics: p.metrics.Set})
	}
	p.tracker = newTracker(p.config, p.events, p.metrics, families...)
	p.unsynced.Store(int32(len(families)))
	tables, err := table.New(table.Config{
		Rules: config.Rules, OwnPorts: config.OwnPorts, Events: p.events, Observer: p.families.observe,
		Open: config.open,
	}, families...)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		p.families, p.sink = append(p.families, newFamily(p.shared, t)), append(p.sink, t)
		p.closers = append(p.closers, t)
	}
	return p, nil
}

// setUp connects to the kernel, in the network namespace of the calling thread.
func (p *Proxier) setUp(families []nft.Family) (err error) {
	if err := p.sink.Setup(); err != nil {
		return err
	}
	p.followers, err = follow.New(follow.Config{
		NodeName: p.config.NodeName, Rules: p.config.Rules, Events: p.events, Metrics: p.metrics.Set,
		Healthy: p.Healthy, History: p.history,
	}, families...)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, p.followers)
	p.tracker.onReplace = p.followers.ReplaceSlice
	if p.addresses, err = watchLocalAddresses(p.onLocalAddresses); err != nil {
		return err
	}
	p.closers = append(p.closers, p.addresses)
	if p.pulse, err = openPulse(p.families[0].table.Generation(), p.calm); err != nil {
		return err
	}
	p.closers = append(p.closers, p.pulse)
	p.openEjector(families)
	return nil
}

// openEjector connects to connection tracking, in the network namespace of the
// calling thread. If that fails, it logs the error: then endpoints that do not
// answer keep their share of new connections.
func (p *Proxier) openEjector(families []nft.Family) {
	if !p.config.Rules.Eject {
		return
	}
	e, err := ejector.New(ejector.Config{
		NodeName: p.config.NodeName, Families: families, Events: p.events, Metrics: p.metrics.Set, Calm: p.calm,
		Query: p.Query, Sync: p.requestSync,
	})
	if err != nil {
		klog.ErrorS(err, "Endpoints that do not answer will not be ejected")
		return
	}
	p.ejector, p.closers = e, append(p.closers, e)
}

// requestSync requests a sync of a family.
func (p *Proxier) requestSync(f nft.Family) { p.families.of(f).request() }

// Close closes the connections to the kernel, after SyncLoop has returned. The
// tables stay.
func (p *Proxier) Close() error {
	var errs []error
	for _, c := range p.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Sync requests a sync as soon as possible. It does not wait for it. No sync
// takes place before the first full lists of Services and EndpointSlices.
func (p *Proxier) Sync() {
	for _, f := range p.families {
		f.request()
	}
}

// SyncLoop syncs on request, retries syncs that failed, and repairs the tables
// when other programs change them. Each address family has a loop of its own.
// SyncLoop returns when ctx ends. The tables stay.
func (p *Proxier) SyncLoop(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() { p.addresses.run(ctx) })
	tasks.Go(func() { p.followers.Run(ctx) })
	if p.ejector != nil {
		tasks.Go(func() { p.ejector.Run(ctx) })
	}
	if p.checker != nil {
		tasks.Go(func() { p.checker.Run(ctx) })
	}
	var loops []*syncLoop
	for _, f := range p.families {
		loops = append(loops, newSyncLoop(f))
	}
	tasks.Go(func() { p.pulse.run(ctx, loops) })
	for _, l := range loops {
		tasks.Go(func() { l.run(ctx) })
	}
}

// Drain closes the NodePorts on localhost, and waits until their connections
// have ended. When ctx ends, it resets those that remain. SyncLoop can continue
// meanwhile: without Drain, it resets them when it returns.
func (p *Proxier) Drain(ctx context.Context) { p.followers.Drain(ctx) }

// Localhost returns the state of a TCP NodePort on localhost. ok is false if
// NodePorts of the family are not served there. Any goroutine can call it.
func (p *Proxier) Localhost(f nft.Family, port uint16) (state localhost.State, ok bool) {
	return p.followers.Localhost(f, port)
}

// HasSlice reports whether a Service has an EndpointSlice, with or without
// endpoints. Any goroutine can call it.
func (p *Proxier) HasSlice(service cluster.ServiceName) bool { return p.tracker.hasSlice(service) }

// Healthy reports whether the rules are in place and up to date: every address
// family had a successful sync, and no change waits for one for twice the sync
// period or longer.
func (p *Proxier) Healthy() bool {
	return !slices.ContainsFunc(p.Health(), func(f healthcheck.FamilyHealth) bool {
		return f.LastUpdated.IsZero() || !f.Healthy || f.Failing
	})
}

// Health returns the health of each address family, for
// healthcheck.ProxyServer. A family is healthy unless a change waits for a
// successful sync for twice the sync period or longer. Changes before the first
// lists of Services and EndpointSlices are complete do not count. Any goroutine
// can call it.
func (p *Proxier) Health() []healthcheck.FamilyHealth {
	all := make([]healthcheck.FamilyHealth, len(p.families))
	for i, f := range p.families {
		all[i], _ = f.health.state()
		all[i].Family = f.name()
	}
	return all
}

// Metrics returns a collector for the Proxier's metrics: the metrics of
// kube-proxy, with its names (kubeproxy_…), and others with names that begin
// with nftproxy_. Any goroutine can use it.
func (p *Proxier) Metrics() prometheus.Collector { return p.metrics }

// NodeName returns the name of the node that the Proxier serves.
func (p *Proxier) NodeName() string { return p.config.NodeName }

// Synced returns a channel that is closed after the first successful sync of
// each address family.
func (p *Proxier) Synced() <-chan struct{} { return p.allSynced }

// NodeEligible reports whether load balancers may send traffic to this node,
// according to its Node object. Any goroutine can call it.
func (p *Proxier) NodeEligible() bool { return p.node.eligible.Load() }

// History returns what happened to the service ports and tables. Any goroutine
// can call it.
func (p *Proxier) History(q history.Query) []history.Entry { return p.history.Entries(q, time.Now()) }

// Status describes the Proxier. It does not wait for a sync: the numbers of the
// tables come from the last publish. Any goroutine can call it.
func (p *Proxier) Status() Status {
	listed, invalid := p.tracker.state()
	s := Status{
		Mode: "nftables", Node: p.config.NodeName, PID: os.Getpid(), Time: time.Now(), Started: p.tracker.started,
		Listed: listed, InvalidObjects: invalid,
		RetryAfterSeconds: int(p.config.Rules.RetryAfter / time.Second), NoTimeouts: p.config.NoTimeouts,
		ResetStaleConnections: p.config.Rules.ResetStaleConnections, Families: make([]FamilyStatus, len(p.families)),
	}
	if p.ejector != nil {
		s.Eject, s.Blind = true, p.ejector.Blind()
	}
	if p.checker != nil {
		s.HealthChecks = p.checker.Summary()
	}
	for i, family := range p.families {
		h, waitingSince := family.health.state()
		stats := *family.stats.Load()
		s.Families[i] = FamilyStatus{
			Family: family.table.Family(), Healthy: h.Healthy && stats.Outage == nil, Synced: h.LastUpdated,
			WaitingSince: waitingSince, LastSync: family.lastSync.Load(), LastWrite: family.lastWrite.Load(),
			Stats: stats,
		}
		if p.followers != nil {
			f := &s.Families[i]
			first, n := p.followers.LastChanges(f.Family, maxLastChanges)
			if f.LastWrite != nil && n > 0 && first[0].Time.Equal(f.LastWrite.Ended) {
				f.LastChanges, f.MoreChanges = first, n-len(first)
			}
		}
	}
	return s
}
