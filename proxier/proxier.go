package proxier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Proxier serves Services on this node. The On methods have the names and the
// parameters of kube-proxy's; any goroutine can call them. SyncLoop makes the
// changes effective.
type Proxier struct {
	*shared
	families families
	parts    []part        // of all families, and others
	sink     cluster.Sinks // all tables; only before SyncLoop
}

// shared is the state that the families of a Proxier share. Any goroutine can
// use it.
type shared struct {
	config    *Config
	events    cluster.EventRecorder
	tracker   *tracker
	node      *nodeTracker
	counters  counterReader
	metrics   *metrics
	patience  time.Duration // queryPatience, except in tests
	unsynced  atomic.Int32  // number of families without a successful sync
	allSynced chan struct{} // closed when it is 0
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
	if err := p.setUp(); err != nil {
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
	p := &Proxier{shared: &shared{
		config:    &config,
		events:    eventLog{config.Events},
		node:      newNodeTracker(&config),
		metrics:   newMetrics(families...),
		patience:  queryPatience,
		allSynced: make(chan struct{}),
	}}
	p.tracker = newTracker(p.config, p.events, p.metrics, families...)
	p.unsynced.Store(int32(len(families)))
	tables, err := table.New(table.Config{
		Rules: config.Rules, OwnPorts: config.OwnPorts, Events: p.events, Observer: &p.families, Open: config.open,
	}, families...)
	if err != nil {
		return nil, err
	}
	limit := newLocalhostLimit()
	for _, t := range tables {
		f, err := newFamily(p.shared, t, p.Healthy, limit)
		if err != nil {
			return nil, err
		}
		p.families, p.parts, p.sink = append(p.families, f), append(p.parts, f.parts...), append(p.sink, t)
	}
	p.metrics.add(p.families.collect)
	p.metrics.add(collectConntrack)
	p.metrics.add(newPacketCounters(&p.counters, families).collect)
	return p, nil
}

// setUp connects to the kernel, in the network namespace of the calling thread.
func (p *Proxier) setUp() (err error) {
	if err := p.sink.Setup(); err != nil {
		return err
	}
	if p.counters.conn, err = nft.Open(); err != nil {
		return err
	}
	p.openStaleFlows()
	if p.config.Rules.ResetStaleConnections {
		p.openStaleConnections()
	}
	addresses, err := watchLocalAddresses(p.onLocalAddresses)
	if err != nil {
		return err
	}
	p.parts = append(p.parts, addresses)
	return nil
}

// follow adds a part that follows the commits of all families.
func (p *Proxier) follow(added part) {
	p.parts = append(p.parts, added)
	for _, f := range p.families {
		f.parts = append(f.parts, added)
	}
}

// Close closes the connections to the kernel, after SyncLoop has returned. The
// tables stay.
func (p *Proxier) Close() error {
	errs := []error{p.counters.close()}
	for _, part := range p.parts {
		errs = append(errs, part.close())
	}
	for _, f := range p.families {
		errs = append(errs, f.table.Close())
	}
	return errors.Join(errs...)
}

// Drain closes the NodePorts on localhost, and waits until their connections
// have ended. When ctx ends, it resets those that remain. SyncLoop can continue
// meanwhile: without Drain, it resets them when it returns.
func (p *Proxier) Drain(ctx context.Context) {
	var drains sync.WaitGroup
	for _, part := range p.parts {
		drains.Go(func() { part.drain(ctx) })
	}
	drains.Wait()
}

// Healthy reports whether the rules are in place and up to date: every address
// family had a successful sync, and no change waits for one for twice the sync
// period or longer.
func (p *Proxier) Healthy() bool {
	return !slices.ContainsFunc(p.Health(), func(f healthcheck.FamilyHealth) bool {
		return f.LastUpdated.IsZero() || !f.Healthy
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
		all[i] = f.health.state()
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
