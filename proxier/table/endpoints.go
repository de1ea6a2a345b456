package table

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

func (d *desired) setEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	endpoints = d.ofFamily(endpoints)
	if d.services[name] == nil && len(endpoints) == 0 {
		return
	}
	s := d.service(name)
	d.edited[s] = struct{}{}
	if s.edits == nil {
		s.edits = make(edits)
	}
	s.edits[source] = endpoints
}

// ofFamily returns the endpoints with addresses of the family.
func (d *desired) ofFamily(endpoints []*cluster.Endpoint) []*cluster.Endpoint {
	ours := func(e *cluster.Endpoint) bool { return d.family.Of(e.Addr) }
	other := func(e *cluster.Endpoint) bool { return !ours(e) }
	switch {
	case !slices.ContainsFunc(endpoints, ours):
		return nil
	case !slices.ContainsFunc(endpoints, other):
		return endpoints
	}
	return slices.DeleteFunc(slices.Clone(endpoints), other)
}

// mergeEndpoints merges all edits, and marks the Services dirty whose endpoints
// change. It charges the CPU time to their namespaces.
func (d *desired) mergeEndpoints() {
	if len(d.edited) == 0 {
		return
	}
	for s := range d.edited {
		took, err := keep.ThreadTimeOf(func() error { d.merge(s); return nil })
		if err != nil {
			klog.ErrorS(err, "Failed to measure the time of a change", "service", s.name)
		}
		s.namespace.Charge(took)
	}
	// A new map: iterating over an emptied one costs as much as before.
	d.edited = make(map[*serviceState]struct{})
}

// merge merges the edits of a Service.
func (d *desired) merge(s *serviceState) {
	before := s.endpoints
	// Equal endpoints are replaced too: the endpoints of one source share
	// memory, which is freed when no old endpoint is left.
	s.endpoints, s.edits = s.limit(s.edits, maxEndpoints).merge(before), nil
	s.weighted = ruleset.HasWeights(s.endpoints)
	unknown := s.spec == nil && len(s.endpoints) == 0 // forgotten by the sync
	if unknown || !slices.EqualFunc(before, s.endpoints, (*cluster.Endpoint).Equal) {
		d.markDirty(s)
		d.endEjections(s, before)
	}
}

// maxEndpoints is the number of endpoints of a Service. More would need a
// transaction that delays all others for seconds, whatever the budgets are.
const maxEndpoints = 100_000

// limit returns the edits after which a Service has at most a number of
// endpoints. The others are left out in an order that depends on nothing but
// the sources and their endpoints: so it is the same after a restart, and a
// change of one source moves few endpoints of others.
func (s *serviceState) limit(changed edits, most int) edits {
	if s.sources == nil {
		n := len(s.endpoints)
		for _, list := range changed {
			n += len(list)
		}
		if n <= most {
			return changed
		}
		s.sources = make(edits)
		for _, e := range s.endpoints {
			s.sources[e.Source] = append(s.sources[e.Source], e)
		}
	}
	before := s.sources.served(most)
	for source, list := range changed {
		if s.sources[source] = list; len(list) == 0 {
			delete(s.sources, source)
		}
	}
	now, limited := s.sources.served(most), make(edits)
	for source := range changed {
		limited[source] = now[source]
	}
	for _, some := range []edits{before, now} {
		for source := range some {
			if len(before[source]) != len(now[source]) {
				limited[source] = now[source]
			}
		}
	}
	s.leftOut = 0
	for source, list := range s.sources {
		s.leftOut += len(list) - len(now[source])
	}
	if s.leftOut == 0 {
		s.sources = nil
	}
	return limited
}

// served returns at most a number of endpoints: those of the sources with the
// lowest hashes, and of the last of them the first ones.
func (all edits) served(most int) edits {
	type source struct {
		hash uint64
		name string
	}
	order := make([]source, 0, len(all))
	for name := range all {
		h := fnv.New64a()
		h.Write([]byte(name))
		order = append(order, source{h.Sum64(), name})
	}
	slices.SortFunc(order, func(a, b source) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), strings.Compare(a.name, b.name))
	})
	served := make(edits)
	for _, s := range order {
		n := min(most, len(all[s.name]))
		if n == 0 {
			break
		}
		served[s.name] = all[s.name][:n]
		most -= n
	}
	return served
}

// merge returns the endpoints after the edits. It modifies neither before nor a
// list.
func (all edits) merge(before []*cluster.Endpoint) []*cluster.Endpoint {
	var kept, added []*cluster.Endpoint
	for _, e := range before {
		if _, replaced := all[e.Source]; !replaced {
			kept = append(kept, e)
		}
	}
	for _, list := range all {
		if len(all) == 1 && len(kept) == 0 {
			return list // which takes no memory
		}
		added = append(added, list...)
	}
	slices.SortFunc(added, compareEndpoints)
	return mergeSorted(kept, added)
}

func compareEndpoints(a, b *cluster.Endpoint) int { return a.EndpointKey.Compare(b.EndpointKey) }

// mergeSorted merges two sorted slices of endpoints.
func mergeSorted(a, b []*cluster.Endpoint) []*cluster.Endpoint {
	all := make([]*cluster.Endpoint, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compareEndpoints(a[0], b[0]) <= 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}
