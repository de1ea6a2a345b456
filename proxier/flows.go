package proxier

import (
	"net/netip"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
)

// flowCleaner deletes flows of UDP clients that do not lead to a serving endpoint any more. It is what a Backend needs of
// conntrack.Cleaner.
type flowCleaner interface {
	Enqueue(...conntrack.Change)
}

// cleanFlows asks for stale flows to be deleted after changes were committed: those of UDP frontends that lost an endpoint, got
// their first or lost their last, and those of UDP NodePorts on addresses that come or go. Nothing is asked for if nothing of that kind
// changed. nodePortsBefore are the addresses on which NodePorts listened before the commit.
func (b *Backend) cleanFlows(changes []change, nodePortsBefore []netip.Addr) {
	if b.flows == nil {
		return
	}
	// Frontends that went come first: one can have come to another service port in the same transaction.
	for _, c := range changes {
		b.flows.Enqueue(b.goneFlows(c, nodePortsBefore)...)
	}
	for _, c := range changes {
		b.flows.Enqueue(b.staleFlows(c, nodePortsBefore)...)
	}
}

// goneFlows returns where the UDP frontends of a service port are no more.
func (b *Backend) goneFlows(c change, nodePortsBefore []netip.Addr) []conntrack.Change {
	now := udpDestinations(c.next, b.have.nodePortAddrs)
	var out []conntrack.Change
	for _, at := range udpDestinations(c.port.committed, nodePortsBefore) {
		if !slices.Contains(now, at) {
			out = append(out, conntrack.Change{Frontend: at, Gone: true})
		}
	}
	return out
}

// staleFlows returns where UDP frontends of a service port are some of whose flows may lead to what is no endpoint any more.
func (b *Backend) staleFlows(c change, nodePortsBefore []netip.Addr) []conntrack.Change {
	if c.next == nil {
		return nil
	}
	var served []netip.AddrPort
	before := udpDestinations(c.port.committed, nodePortsBefore)
	if c.port.committed != nil {
		served = c.port.committed.serving
	}
	grew := onlyGrew(served, c.next.serving)
	var out []conntrack.Change
	for _, at := range udpDestinations(c.next, b.have.nodePortAddrs) {
		if !grew || !slices.Contains(before, at) {
			out = append(out, conntrack.Change{Frontend: at, Endpoints: c.next.serving})
		}
	}
	return out
}

// onlyGrew says whether endpoints were added to some that all stay.
func onlyGrew(before, now []netip.AddrPort) bool {
	if len(before) == 0 {
		return len(now) == 0
	}
	for _, e := range before {
		if !slices.Contains(now, e) {
			return false
		}
	}
	return true
}

func udpFrontends(p *plan) []frontend {
	if p == nil || p.port.Protocol != UDP {
		return nil
	}
	out := make([]frontend, len(p.frontends))
	for i, f := range p.frontends {
		out[i] = f.frontend
	}
	return out
}

// udpDestinations returns where the packets of a service port's UDP clients are sent to: VIPs, and the NodePort on each address
// that NodePorts listen on, of which the unspecified one stands for all.
func udpDestinations(p *plan, nodePortAddrs []netip.Addr) []netip.AddrPort {
	var out []netip.AddrPort
	for _, f := range udpFrontends(p) {
		if f.addr.IsValid() {
			out = append(out, netip.AddrPortFrom(f.addr, f.port))
			continue
		}
		for _, addr := range nodePortAddrs {
			out = append(out, netip.AddrPortFrom(addr, f.port))
		}
	}
	return out
}

// udpVIPs is the set of UDP frontends with an address of their own. Any goroutine can ask for them.
type udpVIPs struct {
	mu   sync.RWMutex
	vips map[netip.AddrPort]struct{}
}

func newUDPVIPs() *udpVIPs { return &udpVIPs{vips: make(map[netip.AddrPort]struct{})} }

// update takes note of changes that were committed.
func (v *udpVIPs) update(changes []change) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range changes {
		for _, f := range udpFrontends(c.port.committed) {
			delete(v.vips, netip.AddrPortFrom(f.addr, f.port))
		}
	}
	for _, c := range changes {
		for _, f := range udpFrontends(c.next) {
			if f.addr.IsValid() {
				v.vips[netip.AddrPortFrom(f.addr, f.port)] = struct{}{}
			}
		}
	}
}

func (v *udpVIPs) contains(vip netip.AddrPort) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, ok := v.vips[vip]
	return ok
}

// staleFlows deletes stale flows for all backends of a Proxier.
type staleFlows struct {
	conn    *conntrack.Conn
	cleaner *conntrack.Cleaner
}

// openStaleFlows connects backends to the connection tracking of the calling thread's network namespace. Where that cannot
// be done, UDP clients that keep their source port can stay with an endpoint that is gone, and the log says so.
func openStaleFlows(backends []*Backend, m *metrics) *staleFlows {
	conn, err := conntrack.Open()
	if err != nil {
		klog.ErrorS(err, "Stale UDP flows will not be deleted")
		return nil
	}
	cleaner, err := conntrack.NewCleaner(conntrack.CleanerConfig{
		Conn: conn,
		IsVIP: func(at netip.AddrPort) bool {
			return slices.ContainsFunc(backends, func(b *Backend) bool { return b.udp.contains(at) })
		},
		Report: func(r conntrack.Result) {
			m.publishFlows(r, backends)
			reportFlows(r)
		},
	})
	if err != nil {
		klog.ErrorS(err, "Stale UDP flows will not be deleted")
		conn.Close()
		return nil
	}
	for _, b := range backends {
		b.flows = cleaner
	}
	return &staleFlows{conn, cleaner}
}

func reportFlows(r conntrack.Result) {
	if r.Err != nil {
		klog.ErrorS(r.Err, "Deleting stale UDP flows failed, trying again", "frontends", r.Changes)
		return
	}
	klog.V(2).InfoS("Deleted stale UDP flows", "frontends", r.Changes, "flows", r.Deleted, "elapsed", r.Duration)
}
