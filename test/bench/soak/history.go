package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// version is the content of a Service or EndpointSlice from a time on. The
// content is empty if the object does not exist or must not be served.
type version struct {
	service   *cluster.Service
	endpoints []*cluster.Endpoint
	from      time.Time // just before the request
	applied   time.Time // when the request was answered; zero while it is not
}

// set sets the content.
func (v *version) set(object metav1.Object) {
	switch o := object.(type) {
	case *corev1.Service:
		v.service = translate.ParseService(o).Service
	case *discoveryv1.EndpointSlice:
		v.endpoints = translate.ParseEndpointSlice(o).Endpoints
	}
}

// versions are the versions of one object, in the order of the requests.
type versions []*version

// forgetAfter is the age of versions that are not needed any more: no proxy
// lags so much.
const forgetAfter = 5 * time.Minute

// add adds a version that may be effective from now on.
func (v *versions) add() *version {
	now := time.Now()
	for len(*v) > 1 && !(*v)[1].applied.IsZero() && (*v)[1].applied.Before(now.Add(-forgetAfter)) {
		*v = (*v)[1:]
	}
	added := &version{from: now}
	*v = append(*v, added)
	return added
}

// possible returns the versions that a proxy can use until end, if it has
// followed all requests that were answered before known.
func (v versions) possible(known, end time.Time) (all versions) {
	first := -1
	for i, one := range v {
		if !one.applied.IsZero() && one.applied.Before(known) {
			first = i
		}
	}
	if first < 0 {
		all = append(all, &version{})
	}
	for _, one := range v[max(first, 0):] {
		if one.from.Before(end) {
			all = append(all, one)
		}
	}
	return all
}

// pending reports whether the last request has not been answered.
func (v versions) pending() bool { return len(v) > 0 && v[len(v)-1].applied.IsZero() }

const clock = "15:04:05.000"

func (v versions) String() (text string) {
	for _, one := range v {
		text += fmt.Sprintf("from %s, answered %s: %+v", one.from.Format(clock), one.applied.Format(clock), one.service)
		for _, e := range one.endpoints {
			text += fmt.Sprintf(" %+v", *e)
		}
		text += "\n"
	}
	return text
}

// history records the contents of Services and EndpointSlices over time.
type history struct {
	mu       sync.Mutex
	services map[string]*recorded // by name
}

// recorded is a Service with its EndpointSlices.
type recorded struct {
	service versions
	slices  map[string]*versions // by name
}

// of returns the record of a Service. The caller holds mu.
func (h *history) of(service string) *recorded {
	r := h.services[service]
	if r == nil {
		r = &recorded{slices: map[string]*versions{}}
		h.services[service] = r
	}
	return r
}

// record is random.API.Record.
func (h *history) record(object metav1.Object, deleted bool) func(live metav1.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	added := h.versionsOf(object).add()
	if !deleted {
		added.set(object)
	}
	return func(live metav1.Object) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !deleted {
			added.set(live)
		}
		added.applied = time.Now()
	}
}

// versionsOf returns the versions of an object. The caller holds mu.
func (h *history) versionsOf(object metav1.Object) *versions {
	name := object.GetName()
	if _, ok := object.(*corev1.Service); ok {
		return &h.of(name).service
	}
	// The name of the Service is the first two parts of the name.
	parts := strings.SplitN(name, "-", 3)
	slices := h.of(strings.Join(parts[:min(2, len(parts))], "-")).slices
	if slices[name] == nil {
		slices[name] = new(versions)
	}
	return slices[name]
}

// served returns the present contents of Services with a prefix, sorted by
// name.
func (h *history) served(prefix string) (all []*cluster.Service) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.services)) {
		v := h.services[name].service
		if len(v) > 0 && v[len(v)-1].service != nil && strings.HasPrefix(name, prefix) {
			all = append(all, v[len(v)-1].service)
		}
	}
	return all
}

// pending reports whether a request for a Service or one of its EndpointSlices
// has not been answered.
func (h *history) pending(service string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	pending := h.of(service).service.pending()
	for _, v := range h.of(service).slices {
		pending = pending || v.pending()
	}
	return pending
}

// possibleServices returns the versions of a Service that a proxy can know in a
// time. See versions.possible.
func (h *history) possibleServices(service string, known, end time.Time) versions {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of(service).service.possible(known, end)
}

// possible returns what a proxy can know about a Service in a time: any of the
// Services, and each combination of contents of its EndpointSlices, as the
// endpoints that they have, in the order of package table; nil if there are too
// many. See versions.possible.
func (h *history) possible(service string, known, end time.Time) (versions, [][]*cluster.Endpoint) {
	const most = 200
	h.mu.Lock()
	defer h.mu.Unlock()
	all := [][]*cluster.Endpoint{nil}
	for _, v := range h.of(service).slices {
		var next [][]*cluster.Endpoint
		for _, before := range all {
			for _, one := range v.possible(known, end) {
				joined := append(slices.Clip(before), one.endpoints...)
				slices.SortFunc(joined, func(a, b *cluster.Endpoint) int { return a.Compare(b.EndpointKey) })
				next = append(next, joined)
			}
		}
		if all = next; len(all) > most {
			return nil, nil
		}
	}
	return h.of(service).service.possible(known, end), all
}

// describe lists the versions of a Service and its EndpointSlices.
func (h *history) describe(service string, known time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := fmt.Sprintf("the proxy has followed all requests answered before %s\n", known.Format(clock))
	text += h.of(service).service.String()
	for _, name := range slices.Sorted(maps.Keys(h.of(service).slices)) {
		text += name + ":\n" + h.of(service).slices[name].String()
	}
	return text
}
