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

// setHealth tells the server of health-check NodePorts how Services stand after a commit.
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

// setHealthAddrs tells the server of health-check NodePorts where to listen: where NodePorts listen.
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

// health knows how long ago what was told became what the kernel does, for each address family. It is safe for use by several goroutines.
type health struct {
	patience time.Duration // how long a change may wait to be carried out

	mu       sync.Mutex // guards what follows, but for upToDate
	families []*familyHealth
}

// familyHealth is the health of one backend.
type familyHealth struct {
	family   nft.Family
	upToDate func() bool // whether the backend did all that it was told; asked by the goroutine that syncs
	waiting  time.Time   // since when a change waits for the next sync; zero if none does
	running  time.Time   // since when a change waits that the sync under way is to carry out; zero if there is none under way
	synced   time.Time   // when the kernel last had all that was told; zero before the first sync
}

// watch adds an address family, before the first sync.
func (h *health) watch(family nft.Family, upToDate func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.families = append(h.families, &familyHealth{family: family, upToDate: upToDate})
}

// changed notes that there is something to sync.
func (h *health) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.families {
		f.waitsSince(time.Now())
	}
}

// waitsSince notes that a change waits, if none waits for longer.
func (f *familyHealth) waitsSince(t time.Time) {
	if f.waiting.IsZero() || t.Before(f.waiting) {
		f.waiting = t
	}
}

// during runs a sync, and takes note of how it ends. Where it fails for one family, the other can be well.
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

// begin takes note that a sync begins. Changes from now on wait for the next.
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

// patient says whether nothing waits for longer than it may.
func (f *familyHealth) patient(patience time.Duration) bool {
	for _, since := range []time.Time{f.waiting, f.running} {
		if !since.IsZero() && time.Since(since) >= patience {
			return false
		}
	}
	return true
}

// state says of each family when it was last as it should be, and whether no change waits longer than it may.
func (h *health) state() []healthcheck.FamilyHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]healthcheck.FamilyHealth, len(h.families))
	for i, f := range h.families {
		out[i] = healthcheck.FamilyHealth{
			Family:      string(apiFamily(f.family)),
			LastUpdated: f.synced,
			Healthy:     !f.synced.IsZero() && f.patient(h.patience),
		}
	}
	return out
}

// ok says whether there was a sync, and nothing waits longer than it may, in any family.
func (h *health) ok() bool {
	state := h.state()
	return len(state) > 0 && !slices.ContainsFunc(state, func(f healthcheck.FamilyHealth) bool { return !f.Healthy })
}

// apiFamily is the family as the API names it.
func apiFamily(f nft.Family) corev1.IPFamily {
	if f == nft.IPv6 {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// Health says for each address family whether the kernel does what the Proxier was told, for healthcheck.ProxyServer. A family is healthy if
// there was a first sync, and no change waits longer for its sync than twice the sync period. Any goroutine can ask.
func (p *Proxier) Health() []healthcheck.FamilyHealth { return p.health.state() }

// NodeEligible says whether this node is to get traffic from load balancers, by its Node object. Any goroutine can ask.
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
