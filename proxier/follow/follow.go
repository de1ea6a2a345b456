// Package follow does what follows the commits of tables. Each of its subjects
// is a follower with a file and a state of its own, and creates its metrics:
//
//	changes.go             entries of the history
//	healthchecks.go        answers on health-check NodePorts
//	balance.go             events about hashes and weights without effect
//	ejections.go           events about endpoints that are ejected
//	localhost.go           TCP NodePorts on localhost (KEP-6032)
//	serviceconnections.go  numbers of connections to Services
//	flows.go               deletion of stale flows in connection tracking
//	staleconnections.go    resets of connections to endpoints that are gone;
//	                       missing.go finds these endpoints
//
// counters.go collects the numbers of packets that the tables reject or drop.
// The package reads counters of the tables, and does not change the tables.
package follow

import (
	"context"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/healthcheck/connlimit"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/localhost"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Followers are the followers of the tables of some address families.
type Followers struct {
	all       []follower
	following map[nft.Family][]follower // in the order in which they get a commit
	localhost map[nft.Family]*localhostPorts
	missing   *missingEndpoints // nil unless their connections are reset
	changes   map[nft.Family]*changes
	history   *history.Log
}

// New returns the followers of the tables of these families. It connects to the
// kernel, in the network namespace of the calling thread.
func New(config Config, families ...nft.Family) (*Followers, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	reader := &counterReader{conn: conn}
	f := &Followers{
		following: make(map[nft.Family][]follower), localhost: make(map[nft.Family]*localhostPorts),
		changes: make(map[nft.Family]*changes), history: config.History,
	}
	f.add(reader)
	limit := newLocalhostLimit()
	ejections := config.Metrics.FamilyCounter("nftproxy_ejections_total",
		"Endpoints of service ports that were ejected because they answered nothing or failed health checks.")
	for _, family := range families {
		if err := f.addForFamily(&config, family, reader, limit); err != nil {
			return nil, errors.Join(err, reader.close())
		}
		f.add(newEjectionEvents(&config, ejections, family), family)
	}
	config.Metrics.Add(func(ch chan<- prometheus.Metric) { collectLocalhost(ch, families, f.localhost) })
	config.Metrics.Add(collectConntrack)
	passes := newPassMetrics(config.Metrics, families)
	udp, attempts := newStaleFlows(&config, passes)
	for _, flows := range []*staleFlows{udp, attempts} {
		if flows.open() {
			f.add(flows, families...)
		}
	}
	resets := newStaleConnections(&config, passes, f.localhost)
	if config.Rules.ResetStaleConnections && resets.open() {
		f.add(resets, families...)
		f.missing = resets.missing
	}
	return f, nil
}

// addForFamily adds the followers that serve one family each.
func (f *Followers) addForFamily(
	config *Config, family nft.Family, reader *counterReader, limit *connlimit.Limit[uint16],
) error {
	f.changes[family] = &changes{log: config.History}
	f.add(f.changes[family], family)
	checks, err := newHealthChecks(config)
	f.add(checks, family)
	f.add(newBalanceEvents(config.Events), family)
	config.Metrics.Add(newPacketCounters(family, reader).collect)
	if config.Rules.Localhost(family) {
		ports, failed := newLocalhostPorts(config, family, limit)
		f.localhost[family], err = ports, errors.Join(err, failed)
		f.add(ports, family)
	}
	if config.Rules.ServiceMetrics.Enabled() {
		connections, failed := newServiceConnections(config, reader, family)
		err = errors.Join(err, failed)
		f.add(connections, family)
	}
	return err
}

// add adds a follower of the commits of these families.
func (f *Followers) add(one follower, families ...nft.Family) {
	f.all = append(f.all, one)
	for _, family := range families {
		f.following[family] = append(f.following[family], one)
	}
}

// Observe is the table.Observer. It passes commits to the followers of a
// family, and everything to the history.
func (f *Followers) Observe(of nft.Family, e table.Event) {
	switch e := e.(type) {
	case *table.Commit:
		for _, one := range f.following[of] {
			one.committed(e)
		}
	case keep.Blame:
		f.history.Blame(of, e...)
	default:
		f.changes[of].observe(of, e)
	}
}

// LastChanges returns the first entries of the history about the last sync of a
// family that has any, and the number of all. Any goroutine can call it.
func (f *Followers) LastChanges(family nft.Family, limit int) (first []history.Entry, n int) {
	return f.changes[family].lastEntries(limit)
}

// ReplaceSlice is called with each new version of an EndpointSlice, before a
// commit can contain it. nil stands for a slice without endpoints.
func (f *Followers) ReplaceSlice(before, now *translate.EndpointSlice) {
	if f.missing != nil {
		f.missing.replaced(before, now)
	}
}

// Localhost returns the state of a TCP NodePort on localhost. ok is false if
// NodePorts of the family are not served there. Any goroutine can call it.
func (f *Followers) Localhost(family nft.Family, port uint16) (state localhost.State, ok bool) {
	if ports, ok := f.localhost[family]; ok {
		return ports.server.State(port), true
	}
	return localhost.State{}, false
}

// Run runs the followers until ctx ends.
func (f *Followers) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for _, one := range f.all {
		tasks.Go(func() { one.run(ctx) })
	}
}

// Drain closes the NodePorts on localhost, and waits until their connections
// have ended. When ctx ends, it resets those that remain. Run can continue
// meanwhile: without Drain, it resets them when it returns.
func (f *Followers) Drain(ctx context.Context) {
	var drains sync.WaitGroup
	defer drains.Wait()
	for _, ports := range f.localhost {
		drains.Go(func() { ports.server.Drain(ctx) })
	}
}

// Close closes the connections to the kernel, after Run has returned.
func (f *Followers) Close() error {
	var errs []error
	for _, one := range f.all {
		errs = append(errs, one.close())
	}
	return errors.Join(errs...)
}
