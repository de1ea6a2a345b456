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

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// version is the content of an object from a time on. The zero content is that
// of an object that does not exist or must not be served.
type version[T any] struct {
	content T
	from    time.Time // just before the request
	applied time.Time // when the request was answered; zero while it is not
}

// versions are those of one object, in the order of the requests.
type versions[T any] []*version[T]

// forgetAfter is the age of versions that are not needed any more: no proxy
// lags so much.
const forgetAfter = 5 * time.Minute

// add adds a version that may be effective from now on.
func (v *versions[T]) add(content T) *version[T] {
	now := time.Now()
	for len(*v) > 1 && !(*v)[1].applied.IsZero() && (*v)[1].applied.Before(now.Add(-forgetAfter)) {
		*v = (*v)[1:]
	}
	added := &version[T]{content: content, from: now}
	*v = append(*v, added)
	return added
}

// possible returns the contents that a proxy can use until end, if it has
// followed all requests that were answered before known.
func (v versions[T]) possible(known, end time.Time) (contents []T) {
	first := -1
	for i, one := range v {
		if !one.applied.IsZero() && one.applied.Before(known) {
			first = i
		}
	}
	if first < 0 {
		contents = append(contents, *new(T))
	}
	for _, one := range v[max(first, 0):] {
		if one.from.Before(end) {
			contents = append(contents, one.content)
		}
	}
	return contents
}

// history implements random.Recorder: it records the contents of Services and
// EndpointSlices over time.
type history struct {
	mu       sync.Mutex
	services map[string]*versions[*cluster.Service]
	slices   map[string]map[string]*versions[*translate.EndpointSlice] // by Service, then by name
}

func newHistory() *history {
	return &history{
		services: map[string]*versions[*cluster.Service]{},
		slices:   map[string]map[string]*versions[*translate.EndpointSlice]{},
	}
}

// Service implements random.Recorder.
func (h *history) Service(name string, to *corev1.Service) func(*corev1.Service) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.services[name]
	if all == nil {
		all = &versions[*cluster.Service]{}
		h.services[name] = all
	}
	added := all.add(parsed(to))
	return func(live *corev1.Service) {
		h.mu.Lock()
		defer h.mu.Unlock()
		added.content, added.applied = parsed(live), time.Now()
	}
}

func parsed(s *corev1.Service) *cluster.Service {
	if s == nil {
		return nil
	}
	return translate.ParseService(s).Service
}

// Slice implements random.Recorder.
func (h *history) Slice(name string, to *discoveryv1.EndpointSlice) func(*discoveryv1.EndpointSlice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	service, content := ownerOf(name), (*translate.EndpointSlice)(nil)
	if to != nil {
		content = translate.ParseEndpointSlice(to)
	}
	if h.slices[service] == nil {
		h.slices[service] = map[string]*versions[*translate.EndpointSlice]{}
	}
	all := h.slices[service][name]
	if all == nil {
		all = &versions[*translate.EndpointSlice]{}
		h.slices[service][name] = all
	}
	added := all.add(content)
	return func(*discoveryv1.EndpointSlice) {
		h.mu.Lock()
		defer h.mu.Unlock()
		added.applied = time.Now()
	}
}

// ownerOf returns the name of the Service of an EndpointSlice: the first two
// parts of its name.
func ownerOf(slice string) string {
	parts := strings.SplitN(slice, "-", 3)
	return strings.Join(parts[:min(2, len(parts))], "-")
}

// served returns the present contents of Services with a prefix, sorted by
// name.
func (h *history) served(prefix string) (all []*cluster.Service) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, v := range h.services {
		if last := (*v)[len(*v)-1].content; last != nil && strings.HasPrefix(name, prefix) {
			all = append(all, last)
		}
	}
	slices.SortFunc(all, func(a, b *cluster.Service) int { return a.Name.Compare(b.Name) })
	return all
}

// pending reports whether a request for a Service or one of its EndpointSlices
// has not been answered.
func (h *history) pending(service string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := func(applied time.Time) bool { return applied.IsZero() }
	if v := h.services[service]; v != nil && last((*v)[len(*v)-1].applied) {
		return true
	}
	for _, v := range h.slices[service] {
		if last((*v)[len(*v)-1].applied) {
			return true
		}
	}
	return false
}

// states is what a proxy can know about a Service: any of the Services, with
// one content of each EndpointSlice.
type states struct {
	services []*cluster.Service
	slices   [][]*translate.EndpointSlice
}

// possible returns the states of a Service in a time. See versions.possible.
func (h *history) possible(service string, known, end time.Time) (s states) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.services = []*cluster.Service{nil}
	if v := h.services[service]; v != nil {
		s.services = v.possible(known, end)
	}
	for _, v := range h.slices[service] {
		s.slices = append(s.slices, v.possible(known, end))
	}
	return s
}

// describe lists the versions of a Service and its EndpointSlices.
func (h *history) describe(service string, known time.Time) string {
	const clock = "15:04:05.000"
	h.mu.Lock()
	defer h.mu.Unlock()
	text := fmt.Sprintf("the proxy has followed all requests answered before %s\n", known.Format(clock))
	if v := h.services[service]; v != nil {
		for _, one := range *v {
			text += fmt.Sprintf("from %s, answered %s: %+v\n", one.from.Format(clock), one.applied.Format(clock), one.content)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.slices[service])) {
		for _, one := range *h.slices[service][name] {
			text += fmt.Sprintf("%s from %s, answered %s:", name, one.from.Format(clock), one.applied.Format(clock))
			if one.content != nil {
				for _, e := range one.content.Endpoints {
					text += fmt.Sprintf(" %+v", *e)
				}
			}
			text += "\n"
		}
	}
	return text
}

// combinations returns each combination of contents of EndpointSlices, as the
// endpoints that they have, in the order of package table; nil if there are too
// many.
func (s states) combinations() [][]*cluster.Endpoint {
	const most = 200
	all := [][]*cluster.Endpoint{nil}
	for _, contents := range s.slices {
		var next [][]*cluster.Endpoint
		for _, before := range all {
			for _, content := range contents {
				endpoints := slices.Clip(before)
				if content != nil {
					endpoints = append(endpoints, content.Endpoints...)
				}
				slices.SortFunc(endpoints, func(a, b *cluster.Endpoint) int { return a.Compare(b.EndpointKey) })
				next = append(next, endpoints)
			}
		}
		if all = next; len(all) > most {
			return nil
		}
	}
	return all
}
