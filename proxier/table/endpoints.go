package table

import (
	"slices"

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
	s.endpoints, s.edits = s.edits.merge(before), nil
	s.weighted = ruleset.HasWeights(s.endpoints)
	unknown := s.spec == nil && len(s.endpoints) == 0 // forgotten by the sync
	if unknown || !slices.EqualFunc(before, s.endpoints, (*cluster.Endpoint).Equal) {
		d.markDirty(s)
		d.endEjections(s, before)
	}
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
