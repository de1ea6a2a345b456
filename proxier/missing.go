package proxier

import (
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

const (
	// missingDelay is how long an endpoint must be in no EndpointSlice before
	// it is gone: endpoints move between slices, and slices are recreated.
	missingDelay = 500 * time.Millisecond
	// missingPatience is how long an endpoint that a Service no longer has
	// waits until other Services no longer have its address either.
	missingPatience = 10 * time.Second
	// missingPeriod is the minimum interval between searches for endpoints that
	// are gone.
	missingPeriod = 50 * time.Millisecond
	// maxMissing limits the number of addresses (5 MB). Connections to further
	// endpoints are not reset.
	maxMissing = 1 << 14
)

// missingEndpoints are the endpoints that recently left their EndpointSlices
// and whose pod has probably ended: the last version of the slice had them as
// terminating, or as neither ready nor serving. Otherwise the pod may live, for
// example if the selector of its Service changed.
type missingEndpoints struct {
	// slices is the number of EndpointSlices that have an address.
	slices map[netip.Addr]int32
	// addrs are the missing endpoints by their addresses.
	addrs map[netip.Addr]*missing
	// returned is called with an address that an EndpointSlice has again.
	returned func(netip.Addr)
	// wake receives a value after an endpoint left, unless it is full.
	wake chan<- struct{}
}

// missing are the endpoints with one address that left their EndpointSlices.
type missing struct {
	endpoints []missingEndpoint
	due       time.Time
}

// missingEndpoint is the last version of an endpoint of a Service.
type missingEndpoint struct {
	service  cluster.ServiceName
	endpoint *cluster.Endpoint
}

// watchMissing begins to record missing endpoints, before the first object.
func (t *tracker) watchMissing(returned func(netip.Addr), wake chan<- struct{}) {
	t.missing = &missingEndpoints{
		slices: make(map[netip.Addr]int32), addrs: make(map[netip.Addr]*missing), returned: returned, wake: wake,
	}
}

// takeMissing calls missingEndpoints.take. While gone runs, no endpoint can
// return.
func (t *tracker) takeMissing(now time.Time, gone func([]missingEndpoint) bool) (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.missing.take(now, gone)
}

// replaced records a new version of an EndpointSlice. nil stands for a slice
// without endpoints.
func (m *missingEndpoints) replaced(before, now *translate.EndpointSlice) {
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
	delete(m.addrs, addr)
	m.returned(addr)
}

func (m *missingEndpoints) leave(service cluster.ServiceName, e *cluster.Endpoint) {
	if m.slices[e.Addr]--; m.slices[e.Addr] <= 0 {
		delete(m.slices, e.Addr)
	}
	if !e.Terminating && (e.Ready || e.Serving) {
		delete(m.addrs, e.Addr)
		return
	}
	found := m.addrs[e.Addr]
	if found == nil {
		if len(m.addrs) >= maxMissing {
			return
		}
		found = new(missing)
		m.addrs[e.Addr] = found
	}
	found.endpoints = append(found.endpoints, missingEndpoint{service, e})
	found.due = time.Now().Add(missingPatience)
	if m.slices[e.Addr] == 0 {
		found.due = time.Now().Add(missingDelay)
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take calls gone with the endpoints of each address that has been in no
// EndpointSlice for missingDelay. If gone returns false, it is called again
// later. take returns the time of the next call, zero if there is none.
func (m *missingEndpoints) take(now time.Time, gone func([]missingEndpoint) bool) (next time.Time) {
	for addr, found := range m.addrs {
		if !now.Before(found.due) {
			if m.slices[addr] > 0 || gone(found.endpoints) {
				delete(m.addrs, addr)
				continue
			}
			found.due = now.Add(missingDelay)
		}
		if next.IsZero() || found.due.Before(next) {
			next = found.due
		}
	}
	return next
}
