package follow

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/share"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

const (
	// missingDelay is how long an endpoint must be in no EndpointSlice before
	// it is gone: endpoints move between slices, and slices are recreated.
	missingDelay = 500 * time.Millisecond
	// missingPatience is how long an endpoint that a Service no longer has
	// waits until other Services no longer have its address either. On a host
	// network, they can have it for ever.
	missingPatience = 10 * time.Second
	// missingPeriod is the minimum interval between searches for endpoints that
	// are gone.
	missingPeriod = 50 * time.Millisecond
	// maxMissing limits the ports of all missing endpoints, until their
	// connections are reset (20 MB). Each namespace has a share. Further
	// endpoints are ignored: if they replaced others, many of them could
	// prevent all resets.
	maxMissing = 1 << 14
	// The log has at most ignoredBurst lines about them, and then one each
	// ignoredPeriod.
	ignoredBurst  = 20
	ignoredPeriod = time.Minute
)

// missingEndpoints are the endpoints that recently left their EndpointSlices
// and whose pod has probably ended: the last version of the slice had them as
// terminating, or as neither ready nor serving. Otherwise the pod may live, for
// example if the selector of its Service changed.
type missingEndpoints struct {
	ignored prometheus.Counter
	// wake receives a value after an endpoint left, unless it is full.
	wake chan struct{}

	mu sync.Mutex // locked while ReplaceSlice is called
	// slices is the number of EndpointSlices that have an address.
	slices map[netip.Addr]int32
	// addrs are the missing endpoints by their addresses.
	addrs map[netip.Addr]*missing
	// limit divides their ports among namespaces, also of those that were
	// forgotten during the reset of their connections.
	limit *share.Limit
	lines *share.Rate // log lines about ignored endpoints
}

// missing are the endpoints with one address that left their EndpointSlices.
type missing struct {
	addr  netip.Addr
	ports []missingPort
	due   time.Time
	// resetting is set when the removals of the ports began. left is the number
	// of those that are not done.
	resetting bool
	left      int
	// forgotten is set when the connections must stay.
	forgotten atomic.Bool
}

// missingPort is a port of the last version of an endpoint.
type missingPort struct {
	servicePort portKey
	number      uint16 // as in cluster.EndpointPort
}

func newMissingEndpoints(config *Config) *missingEndpoints {
	return &missingEndpoints{
		ignored: config.Metrics.Counter("nftproxy_endpoints_gone_ignored_total",
			"Endpoints of service ports whose connections stay because too many endpoints were gone."),
		wake:   make(chan struct{}, 1),
		slices: make(map[netip.Addr]int32), addrs: make(map[netip.Addr]*missing),
		limit: share.NewLimit(maxMissing), lines: share.NewRate(ignoredBurst, 1/ignoredPeriod.Seconds()),
	}
}

// replaced records a new version of an EndpointSlice. nil stands for a slice
// without endpoints.
func (m *missingEndpoints) replaced(before, now *translate.EndpointSlice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var old, current []*cluster.Endpoint
	if before != nil {
		old = before.Endpoints
	}
	if now != nil {
		current = now.Endpoints
	}
	for len(old) > 0 || len(current) > 0 {
		switch {
		case len(current) == 0 || len(old) > 0 && old[0].Addr.Less(current[0].Addr):
			m.leave(before.Service, old[0])
			old = old[1:]
		case len(old) == 0 || current[0].Addr.Less(old[0].Addr):
			m.enter(current[0].Addr)
			current = current[1:]
		default:
			old, current = old[1:], current[1:]
		}
	}
}

func (m *missingEndpoints) enter(addr netip.Addr) {
	m.slices[addr]++
	m.forget(addr)
}

func (m *missingEndpoints) leave(service cluster.ServiceName, e *cluster.Endpoint) {
	if m.slices[e.Addr]--; m.slices[e.Addr] <= 0 {
		delete(m.slices, e.Addr)
	}
	if !e.Terminating && (e.Ready || e.Serving) {
		m.forget(e.Addr)
		return
	}
	n := len(e.Ports)
	if n == 0 {
		return
	}
	if !m.limit.Take(service.Namespace, n) {
		m.ignore(service, e)
		return
	}
	found := m.addrs[e.Addr]
	if found == nil {
		found = &missing{addr: e.Addr}
		m.addrs[e.Addr] = found
	}
	for _, p := range e.Ports {
		key := portKey{nft.FamilyOf(e.Addr), service.WithPort(p.Name), p.Protocol}
		found.ports = append(found.ports, missingPort{key, p.Port})
	}
	found.due = time.Now().Add(missingPatience)
	if m.slices[e.Addr] == 0 {
		found.due = time.Now().Add(missingDelay)
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *missingEndpoints) ignore(service cluster.ServiceName, e *cluster.Endpoint) {
	m.ignored.Add(float64(len(e.Ports)))
	if m.lines.Use(service.Namespace, time.Now()) {
		klog.InfoS("Too many endpoints of a namespace are gone: connections to further ones will not be reset",
			"service", service, "endpoint", e.Addr, "limit", maxMissing)
	}
}

// forget makes the connections to an address stay.
func (m *missingEndpoints) forget(addr netip.Addr) {
	found := m.addrs[addr]
	if found == nil {
		return
	}
	delete(m.addrs, addr)
	found.forgotten.Store(true)
	if !found.resetting {
		for _, p := range found.ports {
			m.limit.Return(p.servicePort.Namespace, 1)
		}
	}
}

// take returns the endpoints of each address that has been in no EndpointSlice
// for missingDelay. It returns them again later until begin is called with
// them. next is the time of the next call, zero if there is none.
func (m *missingEndpoints) take(now time.Time) (gone map[netip.Addr]*missing, next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone = make(map[netip.Addr]*missing)
	for addr, found := range m.addrs {
		if found.resetting {
			continue
		}
		if !now.Before(found.due) {
			if m.slices[addr] > 0 {
				m.forget(addr)
				continue
			}
			gone[addr] = found
			found.due = now.Add(missingDelay)
		}
		if next.IsZero() || found.due.Before(next) {
			next = found.due
		}
	}
	return gone, next
}

// begin begins the removals of the ports of an address whose service ports are
// served. It returns false if there are none, or if the connections must stay.
func (m *missingEndpoints) begin(found *missing, served func(portKey) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found.forgotten.Load() {
		return false
	}
	found.ports = slices.DeleteFunc(found.ports, func(p missingPort) bool {
		if served(p.servicePort) {
			return false
		}
		m.limit.Return(p.servicePort.Namespace, 1)
		return true
	})
	if len(found.ports) == 0 {
		m.forget(found.addr)
		return false
	}
	found.resetting, found.left = true, len(found.ports)
	return true
}

// done records that the removal of a port is done.
func (m *missingEndpoints) done(found *missing, port portKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit.Return(port.Namespace, 1)
	if found.left--; found.left == 0 && m.addrs[found.addr] == found {
		delete(m.addrs, found.addr)
	}
}
