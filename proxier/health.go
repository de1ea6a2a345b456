package proxier

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
)

// healthServer answers load balancers on health-check NodePorts. It is what a Backend needs of healthcheck.ServiceServer.
type healthServer interface {
	SetService(healthcheck.Service)
	DeleteService(namespace, name string)
	SetAddrs([]netip.Addr)
}

// newHealthServer returns the server of the health-check NodePorts of one backend.
func newHealthServer(b *Backend, h *health) (*healthcheck.ServiceServer, error) {
	server, err := healthcheck.NewServiceServer(healthcheck.Config{
		NodeName: b.config.NodeName,
		Healthy:  h.ok,
		Report: func(e healthcheck.Event) {
			recordEvent(b.config.Events, Event{Kind: "Service", Namespace: e.Namespace, Name: e.Name, Reason: e.Reason, Note: e.Message})
		},
	})
	if err != nil {
		return nil, err
	}
	server.SetAddrs([]netip.Addr{}) // until the first sync tells
	return server, nil
}

// tellHealth tells the server of health-check NodePorts how Services stand after a commit.
func (b *Backend) tellHealth(services map[*serviceState]struct{}) {
	if b.health == nil {
		return
	}
	for s := range services {
		svc := s.spec
		if svc == nil || svc.HealthCheckNodePort == 0 || !slices.Contains(svc.Families, b.layout.family) {
			b.health.DeleteService(s.name.Namespace, s.name.Name)
			continue
		}
		b.health.SetService(healthcheck.Service{
			Namespace: s.name.Namespace, Name: s.name.Name, Port: svc.HealthCheckNodePort, LocalEndpoints: b.readyHere(s),
		})
	}
}

// nodePortDestinations returns the addresses on which NodePorts listen; the unspecified address stands for all. It is never nil.
func (b *Backend) nodePortDestinations(program *programConfig) []netip.Addr {
	if program.nodePortsAll {
		return []netip.Addr{b.anyAddr()}
	}
	return append([]netip.Addr{}, b.nodePortIPs()...)
}

// tellHealthAddrs tells the server of health-check NodePorts where to listen: where NodePorts listen.
func (b *Backend) tellHealthAddrs() {
	if b.health == nil {
		return
	}
	b.health.SetAddrs(b.nodePortAddrs)
}

// anyAddr is the address of the family that stands for all.
func (b *Backend) anyAddr() netip.Addr {
	if b.layout.family == nft.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// readyHere counts the ready addresses that a Service has on this node.
func (b *Backend) readyHere(s *serviceState) int {
	ready := make(map[netip.Addr]struct{})
	for _, e := range s.endpoints {
		if e.Ready && e.Node == b.node.Name {
			ready[e.Addr] = struct{}{}
		}
	}
	return len(ready)
}

// health knows whether what was told is in the kernel. It is safe for use by several goroutines.
type health struct {
	patience time.Duration // how long a change may wait to be carried out
	synced   atomic.Bool   // there was a first sync
	waiting  atomic.Int64  // since when a change waits, in nanoseconds since 1970; 0 if none does
}

// changed notes that there is something to sync.
func (h *health) changed() { h.waiting.CompareAndSwap(0, time.Now().UnixNano()) }

// during runs a sync, and takes note of how it ends.
func (h *health) during(sync func() error) error {
	since := h.waiting.Swap(0) // what comes from now on waits for the next sync
	err := sync()
	if err == nil {
		h.synced.Store(true)
		return nil
	}
	if since == 0 {
		since = time.Now().UnixNano()
	}
	h.waiting.Store(since)
	return err
}

// ok says whether there was a sync, and nothing waits longer than it may.
func (h *health) ok() bool {
	since := h.waiting.Load()
	return h.synced.Load() && (since == 0 || time.Since(time.Unix(0, since)) < h.patience)
}
