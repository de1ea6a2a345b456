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

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Proxier serves Services on this node. The On methods have the names and the
// parameters of kube-proxy's; any goroutine can call them. SyncLoop makes the
// changes effective.
type Proxier struct {
	config    *Config
	tracker   *tracker
	node      *nodeTracker
	addresses *localAddresses
	families  []*family
	sink      cluster.Sinks // all tables; only before SyncLoop
	flows     *staleFlows   // nil if connection tracking cannot be used
	counters  counterReader
	metrics   *metrics
	routes    *explain.NodeRoutes // for Explain
	patience  time.Duration       // queryPatience, except in tests
	unsynced  atomic.Int32        // number of families without a successful sync
	synced    chan struct{}       // closed when it is 0
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
	if reason := config.noLoopback(); reason != "" {
		klog.InfoS("NodePorts do not listen on loopback addresses", "reason", reason)
	}
	return p, nil
}

// assemble returns a Proxier that is not connected to the kernel yet.
func assemble(config Config, families ...nft.Family) (*Proxier, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	events := eventLog{config.Events}
	m := newMetrics(families...)
	p := &Proxier{
		config:   &config,
		tracker:  newTracker(&config, events, m, families...),
		node:     newNodeTracker(&config),
		metrics:  m,
		patience: queryPatience,
		synced:   make(chan struct{}),
	}
	tables, err := table.New(table.Config{
		Rules: config.rules(), OwnPorts: config.OwnPorts, Events: events, Observer: observer{p}, Open: config.open,
	}, families...)
	if err != nil {
		return nil, err
	}
	limit := newLocalhostLimit()
	for _, t := range tables {
		f, err := newFamily(p, t, events, limit)
		if err != nil {
			return nil, err
		}
		p.families, p.sink = append(p.families, f), append(p.sink, t)
	}
	p.unsynced.Store(int32(len(p.families)))
	m.add(tableMetrics{p})
	m.add(localhostMetrics{p})
	m.add(stateMetrics{p})
	m.add(newPacketCounters(&p.counters, families))
	return p, nil
}

// setUp connects to the kernel, in the network namespace of the calling thread.
func (p *Proxier) setUp() (err error) {
	if err := p.sink.Setup(); err != nil {
		return err
	}
	if err := p.counters.open(); err != nil {
		return err
	}
	if p.routes, err = explain.OpenRoutes(); err != nil {
		return err
	}
	p.flows = openStaleFlows(p.metrics, p.tracker.families)
	p.addresses, err = watchLocalAddresses(p.onLocalAddresses)
	return err
}

// Close closes the connections to the kernel, after SyncLoop has returned. The
// tables stay.
func (p *Proxier) Close() error {
	var errs []error
	if p.addresses != nil {
		p.addresses.close()
	}
	if p.flows != nil {
		errs = append(errs, p.flows.conn.Close())
	}
	if p.routes != nil {
		p.routes.Close()
	}
	errs = append(errs, p.counters.close())
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
	for _, f := range p.families {
		if f.localhost != nil {
			drains.Go(func() { f.localhost.server.Drain(ctx) })
		}
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

// Metrics returns a collector for the Proxier's metrics: those of kube-proxy,
// with its names (kubeproxy_…), and others with names that begin with
// nftproxy_. Any goroutine can use it.
func (p *Proxier) Metrics() prometheus.Collector { return p.metrics }

// NodeName returns the name of the node that the Proxier serves.
func (p *Proxier) NodeName() string { return p.config.NodeName }

// Synced returns a channel that is closed after the first successful sync of
// each address family.
func (p *Proxier) Synced() <-chan struct{} { return p.synced }
