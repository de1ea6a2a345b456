package proxier

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
)

// healthServer answers load balancers on health-check NodePorts. It is what a Backend needs of healthcheck.ServiceServer.
type healthServer interface {
	SetService(healthcheck.Service)
	DeleteService(namespace, name string)
	SetAddrs([]netip.Addr)
}

// newHealthServer returns the server of the health-check NodePorts of one backend, which counts for h from now on.
func newHealthServer(b *Backend, h *health) (*healthcheck.ServiceServer, error) {
	h.watch(b.layout.family, b.upToDate)
	server, err := healthcheck.NewServiceServer(healthcheck.ServiceConfig{
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

// setHealth updates the server of health-check NodePorts after a commit.
func (b *Backend) setHealth(services map[*serviceState]struct{}) {
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

// setHealthAddrs makes the server of health-check NodePorts listen where NodePorts
// listen.
func (b *Backend) setHealthAddrs() {
	if b.health == nil {
		return
	}
	b.health.SetAddrs(b.have.nodePortAddrs)
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

// upToDate says whether the kernel has all that the Backend was told.
func (b *Backend) upToDate() bool { return b.inDoubt == "" && !b.newNode && len(b.dirty) == 0 }

// health is the health of the syncs of each address family: whether changes reach
// the kernel in time. Any goroutine can use it.
type health struct {
	patience time.Duration // how long a change may wait for a successful sync

	mu       sync.Mutex // guards what follows, but for upToDate
	families []*familyHealth
}

// familyHealth is the health of one backend.
type familyHealth struct {
	family   nft.Family
	upToDate func() bool // reports whether the kernel has all changes; called by the goroutine that syncs
	waiting  time.Time   // when the oldest change was made that waits for the next sync; zero if there is none
	running  time.Time   // when the oldest change was made that the running sync writes; zero if no sync is running
	synced   time.Time   // when the last successful sync ended; zero before the first
}

// watch adds an address family, before the first sync.
func (h *health) watch(family nft.Family, upToDate func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.families = append(h.families, &familyHealth{family: family, upToDate: upToDate})
}

// changed records that a change waits for a sync. It must be called only if a sync
// can follow: a change that waits for the API server is not late.
func (h *health) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.families {
		f.waitsSince(time.Now())
	}
}

// waitsSince records that a change has been waiting since t.
func (f *familyHealth) waitsSince(t time.Time) {
	if f.waiting.IsZero() || t.Before(f.waiting) {
		f.waiting = t
	}
}

// during runs a sync and records its outcome for each family: a sync that fails
// for one family can succeed for the other.
func (h *health) during(sync func() error) error {
	h.begin()
	err := sync()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.families {
		if err == nil || f.upToDate() {
			f.synced = time.Now()
		} else {
			f.waitsSince(f.running)
		}
		f.running = time.Time{}
	}
	return err
}

// begin records that a sync begins. Later changes wait for the next one.
func (h *health) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.families {
		f.running = time.Now()
		if !f.waiting.IsZero() {
			f.running = f.waiting
		}
		f.waiting = time.Time{}
	}
}

// inTime reports whether no change has been waiting for patience or longer.
func (f *familyHealth) inTime(patience time.Duration) bool {
	for _, since := range []time.Time{f.waiting, f.running} {
		if !since.IsZero() && time.Since(since) >= patience {
			return false
		}
	}
	return true
}

// state returns the health of each family.
func (h *health) state() []healthcheck.FamilyHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]healthcheck.FamilyHealth, len(h.families))
	for i, f := range h.families {
		out[i] = healthcheck.FamilyHealth{
			Family:      string(apiFamily(f.family)),
			LastUpdated: f.synced,
			Healthy:     f.inTime(h.patience),
		}
	}
	return out
}

// ok reports whether every family had a successful sync and no change is late.
func (h *health) ok() bool {
	state := h.state()
	return len(state) > 0 && !slices.ContainsFunc(state, func(f healthcheck.FamilyHealth) bool {
		return f.LastUpdated.IsZero() || !f.Healthy
	})
}

// apiFamily is the family as the API names it.
func apiFamily(f nft.Family) corev1.IPFamily {
	if f == nft.IPv6 {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// Health returns the health of each address family, for healthcheck.ProxyServer. A
// family is healthy unless a change waits for a successful sync for twice the sync
// period or longer. Changes before the first full lists of Services and
// EndpointSlices wait for these lists, and do not count. Any goroutine can call it.
func (p *Proxier) Health() []healthcheck.FamilyHealth { return p.health.state() }

// NodeEligible reports whether load balancers may send traffic to this node,
// according to its Node object. Any goroutine can call it.
func (p *Proxier) NodeEligible() bool { return p.node.eligible.Load() }

// NodeIPs returns the primary addresses of a node, at most one a family: the first InternalIP, or else the first ExternalIP.
func NodeIPs(node *corev1.Node) []netip.Addr { return primaryIPs(node.Status.Addresses) }

// TaintToBeDeleted is the taint that the cluster autoscaler puts on a node that it is about to delete.
const TaintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NodeEligible says whether a node is to get traffic from load balancers: it exists and is not being deleted (KEP-3836). nil is a node that
// does not exist.
func NodeEligible(node *corev1.Node) bool {
	return node != nil && node.DeletionTimestamp.IsZero() &&
		!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == TaintToBeDeleted })
}
