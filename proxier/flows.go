package proxier

import (
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
)

// flowCleaner deletes flows of UDP clients that do not lead to a serving
// endpoint. It is the part of conntrack.Cleaner that a Backend needs.
type flowCleaner interface {
	Update(...conntrack.Change)
	Replace(conntrack.Family, ...conntrack.Change)
	SetNodeAddrs(conntrack.Family, []netip.Addr)
}

// cleanFlows passes the changes of UDP service ports in a committed transaction
// to the flow cleaner, which decides whether flows may be stale.
// nodePortsBefore are the addresses that NodePorts listened on before.
//
// The work and the memory grow with the number of frontends plus the number of
// node addresses plus the number of endpoints: a NodePort is one frontend, and
// all frontends of a service port share one slice of endpoints.
func (b *Backend) cleanFlows(tx *transaction, nodePortsBefore []netip.Addr) {
	if b.flows == nil {
		return
	}
	family := conntrack.Family(b.layout.family) // both are the kernel's NFPROTO numbers
	if !slices.Equal(nodePortsBefore, b.have.nodePortAddrs) {
		b.flows.SetNodeAddrs(family, b.have.nodePortAddrs)
	}
	if tx.whole {
		// The previous frontends may not be known: Reset forgets them. And while the
		// table was damaged, packets may have created flows to no endpoint.
		served := b.servedFrontends(nil, tx.changes)
		for i := range served {
			served[i].Check = true
		}
		b.flows.Replace(family, served...)
		return
	}
	// Frontends that are gone come first: in the same transaction, one of them
	// can have moved to another service port.
	b.flows.Update(b.servedFrontends(b.goneFrontends(nil, tx.changes), tx.changes)...)
}

// goneFrontends appends the UDP frontends that service ports no longer have.
func (b *Backend) goneFrontends(out []conntrack.Change, changes []change) []conntrack.Change {
	for _, c := range changes {
		before, now := udpFrontends(c.port.committed), udpFrontends(c.next)
		if len(before) == 0 || slices.EqualFunc(before, now, sameFrontend) {
			continue
		}
		kept := make(map[frontend]struct{}, len(now))
		for _, f := range now {
			kept[f.frontend] = struct{}{}
		}
		for _, f := range before {
			if _, ok := kept[f.frontend]; !ok {
				out = append(out, conntrack.Change{Frontend: b.destination(f.frontend), Gone: true})
			}
		}
	}
	return out
}

// servedFrontends appends the UDP frontends that service ports have, with their
// endpoints.
func (b *Backend) servedFrontends(out []conntrack.Change, changes []change) []conntrack.Change {
	for _, c := range changes {
		// Serving endpoints need not be usable: a service port whose only endpoint
		// becomes ready begins to serve although its serving endpoints stay.
		begins := c.port.committed != nil && len(c.port.committed.cluster) == 0 && c.next != nil && len(c.next.cluster) > 0
		for _, f := range udpFrontends(c.next) {
			out = append(out, conntrack.Change{Frontend: b.destination(f.frontend), Endpoints: c.next.serving, Check: begins})
		}
	}
	return out
}

// destination returns the address and port that clients of a frontend send to,
// for a NodePort with the unspecified address.
func (b *Backend) destination(f frontend) netip.AddrPort {
	if !f.addr.IsValid() {
		return netip.AddrPortFrom(b.anyAddr(), f.port)
	}
	return netip.AddrPortFrom(f.addr, f.port)
}

func udpFrontends(p *plan) []servedFrontend {
	if p == nil || p.port.Protocol != UDP {
		return nil
	}
	return p.frontends
}

func sameFrontend(a, b servedFrontend) bool { return a.frontend == b.frontend }

// staleFlows deletes stale flows for all backends of a Proxier.
type staleFlows struct {
	conn    *conntrack.Conn
	cleaner *conntrack.Cleaner
}

// openStaleFlows connects backends to the connection tracking of the calling
// thread's network namespace. If that fails, it logs the error and returns nil.
// UDP clients that keep their source port can then stay with an endpoint that
// is gone.
func openStaleFlows(backends []*Backend, m *metrics) *staleFlows {
	conn, err := conntrack.Open()
	if err != nil {
		klog.ErrorS(err, "Stale UDP flows will not be deleted")
		return nil
	}
	cleaner, err := conntrack.NewCleaner(conntrack.CleanerConfig{
		Conn: conn,
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
		klog.ErrorS(r.Err, "Failed to delete stale UDP flows, retrying", "changes", r.Changes, "rechecks", r.Rechecks)
		return
	}
	klog.V(2).InfoS("Deleted stale UDP flows",
		"changes", r.Changes, "rechecks", r.Rechecks, "flows", r.Deleted, "elapsed", r.Duration)
}
