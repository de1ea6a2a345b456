package main

import (
	"errors"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// receiver is the part of a cluster.Sink that Services are handed over to.
type receiver interface {
	SetService(*cluster.Service)
	SetEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint)
}

// subject is what is measured.
type subject interface {
	receiver
	// sync carries out what was handed over, waits until that is done, and
	// returns what it cost. It fails if a service port is not served.
	sync() (sample, error)
	// Close leaves the table in the kernel.
	Close() error
}

func newSubject(f *feature) (subject, error) {
	if f.staleFlows {
		return newProxy()
	}
	return newTables(f.families())
}

func newConfig() *proxier.Config {
	return &proxier.Config{
		NodeName:     nodeName,
		NodeIPs:      []netip.Addr{address(nft.IPv4, nodeIPs, 0), address(nft.IPv6, nodeIPs, 0)},
		DetectLocal:  ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR, ClusterCIDRs: podCIDRs()},
		SyncPeriod:   time.Hour, // no resync during a measurement
		ExplicitSync: true,
	}
}

// tables measures a Table for each family, without the sync loop.
type tables struct {
	cluster.Sinks
	all []*table.Table
}

func newTables(families []nft.Family) (*tables, error) {
	b, config := new(tables), newConfig()
	all, err := table.New(table.Config{
		Rules: ruleset.Config{DetectLocal: config.DetectLocal, NodePortAddresses: config.NodePortAddresses},
	}, families...)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		b.Sinks, b.all = append(b.Sinks, t), append(b.all, t)
	}
	b.SetNode(&cluster.Node{Name: config.NodeName, IPs: config.NodeIPs})
	return b, b.Setup()
}

func (b *tables) sync() (sample, error) {
	before, begin := b.stats(), time.Now()
	if err := b.Sync(); err != nil {
		return sample{}, err
	}
	cost, after := sample{Seconds: time.Since(begin).Seconds()}, b.stats()
	if after.Refusals+after.Conflicts > 0 {
		return sample{}, errors.New("a service port is not served")
	}
	cost.KernelSeconds = (after.CommitTime - before.CommitTime).Seconds()
	cost.Transactions = after.Transactions - before.Transactions
	return cost, nil
}

// stats returns the sum of the Stats of all Tables.
func (b *tables) stats() (sum table.Stats) {
	for _, backend := range b.all {
		s := backend.Stats()
		sum.CommitTime += s.CommitTime
		sum.Transactions += s.Transactions
		sum.Refusals += s.Refusals
		sum.Conflicts += s.Conflicts
	}
	return sum
}

// Close closes all Tables.
func (b *tables) Close() error {
	var errs []error
	for _, backend := range b.all {
		errs = append(errs, backend.Close())
	}
	return errors.Join(errs...)
}
