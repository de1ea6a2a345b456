package main

import (
	"errors"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
)

// receiver is the part of a proxier.Sink that Services are handed over to.
type receiver interface {
	SetService(*proxier.Service)
	SetEndpoints(name proxier.ServiceName, source string, endpoints []*proxier.Endpoint)
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
	return newBackends(f.families())
}

func newConfig() *proxier.Config {
	return &proxier.Config{
		NodeName:     nodeName,
		NodeIPs:      []netip.Addr{address(nft.IPv4, nodeIPs, 0), address(nft.IPv6, nodeIPs, 0)},
		DetectLocal:  proxier.LocalDetection{Mode: proxier.DetectLocalClusterCIDR, ClusterCIDRs: podCIDRs()},
		SyncPeriod:   time.Hour, // no resync during a measurement
		ExplicitSync: true,
	}
}

// backends measures a Backend for each family, without the sync loop.
type backends struct {
	proxier.Sinks
	all []*proxier.Backend
}

func newBackends(families []nft.Family) (*backends, error) {
	b, config := new(backends), newConfig()
	for _, f := range families {
		backend, err := proxier.NewBackend(config, f)
		if err != nil {
			return nil, err
		}
		b.Sinks, b.all = append(b.Sinks, backend), append(b.all, backend)
	}
	b.SetNode(&proxier.Node{Name: config.NodeName, IPs: config.NodeIPs})
	return b, b.Setup()
}

func (b *backends) sync() (sample, error) {
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

// stats returns the sum of all Backends' Stats.
func (b *backends) stats() (sum proxier.Stats) {
	for _, backend := range b.all {
		s := backend.Stats()
		sum.CommitTime += s.CommitTime
		sum.Transactions += s.Transactions
		sum.Refusals += s.Refusals
		sum.Conflicts += s.Conflicts
	}
	return sum
}

// Close closes all Backends.
func (b *backends) Close() error {
	var errs []error
	for _, backend := range b.all {
		errs = append(errs, backend.Close())
	}
	return errors.Join(errs...)
}
