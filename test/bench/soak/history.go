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

// with returns the versions and another one, without those that are too old.
func (v versions) with(added *version) versions {
	old := added.from.Add(-forgetAfter)
	for len(v) > 1 && !v[1].applied.IsZero() && v[1].applied.Before(old) {
		v = v[1:]
	}
	return append(v, added)
}

// possible returns the versions that a proxy can use until end, if it has
// followed all requests that were answered before known.
func (v versions) possible(known, end time.Time) versions {
	all := versions{{}}
	for _, one := range v {
		if !one.applied.IsZero() && one.applied.Before(known) {
			all = nil // the earlier ones are replaced
		}
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
		text += fmt.Sprintf("from %s, answered %s:", one.from.Format(clock), one.applied.Format(clock))
		if one.service != nil {
			text += fmt.Sprintf(" %+v", one.service)
		}
		for _, e := range one.endpoints {
			text += fmt.Sprintf(" %+v", *e)
		}
		text += "\n"
	}
	return text
}

// history records the contents of Services and EndpointSlices over time.
type history struct {
	mu sync.Mutex
	// objects are the versions of a Service and of its EndpointSlices, by the
	// name of the Service and by their own names.
	objects map[string]map[string]versions
}

// record is objects.API.Record.
func (h *history) record(object metav1.Object, deleted bool) func(live metav1.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name, added := object.GetName(), &version{from: time.Now()}
	// The name of the Service is the first two parts of the name.
	parts := strings.SplitN(name, "-", 3)
	service := strings.Join(parts[:min(2, len(parts))], "-")
	if h.objects[service] == nil {
		h.objects[service] = map[string]versions{}
	}
	h.objects[service][name] = h.objects[service][name].with(added)
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

// served returns the present contents of Services with a prefix, sorted by
// name.
func (h *history) served(prefix string) (all []*cluster.Service) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.objects)) {
		v := h.objects[name][name]
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
	for _, v := range h.objects[service] {
		if v.pending() {
			return true
		}
	}
	return false
}

// possible returns what a proxy can know about a Service until end, if it has
// followed all requests that were answered before known: any of the Services,
// and each combination of contents of its EndpointSlices, as the endpoints that
// they have, in the order of package table; nil if there are too many. The
// proxy writes the ports of a Service with many external IPs one at a time,
// after other Services: then earlier counts, the time up to which it had
// followed a moment ago.
func (h *history) possible(service string, earlier, known, end time.Time) (versions, [][]*cluster.Endpoint) {
	const many, most = 100, 200
	hasMany := func(v *version) bool { return v.service != nil && len(v.service.ExternalIPs) >= many }
	h.mu.Lock()
	defer h.mu.Unlock()
	services := h.objects[service][service]
	if slices.ContainsFunc(services.possible(earlier, end), hasMany) {
		known = earlier
	}
	all := [][]*cluster.Endpoint{nil}
	for name, v := range h.objects[service] {
		if name == service {
			continue
		}
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
	return services.possible(known, end), all
}

// describe lists the versions of a Service and its EndpointSlices.
func (h *history) describe(service string, known time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := fmt.Sprintf("the proxy has followed all requests answered before %s\n", known.Format(clock))
	for _, name := range slices.Sorted(maps.Keys(h.objects[service])) {
		text += name + ":\n" + h.objects[service][name].String()
	}
	return text
}
