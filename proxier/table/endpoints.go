package table

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// edits are the changes of the endpoints of a Service since they were last
// merged, by source. They are merged once per sync: a Service can have tens of
// thousands of sources.
type edits map[string]*edit

// edit is the change of the endpoints of one source.
type edit struct {
	// whole reports whether list replaces the earlier endpoints.
	whole bool
	list  []*cluster.Endpoint
	// single are the endpoints that were set after list. nil stands for a
	// deleted one.
	single map[netip.Addr]*cluster.Endpoint
}

func (d *desired) setEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	endpoints = d.ofFamily(endpoints)
	if d.services[name] != nil || len(endpoints) > 0 {
		*d.edit(name, source) = edit{whole: true, list: endpoints}
	}
}

func (d *desired) setEndpoint(name cluster.ServiceName, e *cluster.Endpoint) {
	if d.family.Of(e.Addr) {
		d.edit(name, e.Source).set(e.Addr, e)
	}
}

func (d *desired) deleteEndpoint(name cluster.ServiceName, key cluster.EndpointKey) {
	if d.services[name] != nil {
		d.edit(name, key.Source).set(key.Addr, nil)
	}
}

// edit returns the edit of a source, and creates it if necessary.
func (d *desired) edit(name cluster.ServiceName, source string) *edit {
	s := d.service(name)
	d.edited[s] = struct{}{}
	if s.edits == nil {
		s.edits = make(edits)
	}
	if s.edits[source] == nil {
		s.edits[source] = new(edit)
	}
	return s.edits[source]
}

func (e *edit) set(addr netip.Addr, to *cluster.Endpoint) {
	if e.single == nil {
		e.single = make(map[netip.Addr]*cluster.Endpoint)
	}
	e.single[addr] = to
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
// change.
func (d *desired) mergeEndpoints() {
	if len(d.edited) == 0 {
		return
	}
	for s := range d.edited {
		before := s.endpoints
		// Equal endpoints are replaced too: the endpoints of one source share
		// memory, which is freed when no old endpoint is left.
		s.endpoints, s.edits = s.edits.merge(before), nil
		unknown := s.spec == nil && len(s.endpoints) == 0 // forgotten by the sync
		if unknown || !slices.EqualFunc(before, s.endpoints, (*cluster.Endpoint).Equal) {
			d.markDirty(s)
		}
	}
	// A new map: iterating over an emptied one costs as much as before.
	d.edited = make(map[*serviceState]struct{})
}

// merge returns the endpoints after the edits. It modifies neither before nor a
// list.
func (all edits) merge(before []*cluster.Endpoint) []*cluster.Endpoint {
	var kept, added []*cluster.Endpoint
	for _, e := range before {
		if change := all[e.Source]; change == nil || !change.replaces(e.Addr) {
			kept = append(kept, e)
		}
	}
	for _, change := range all {
		if len(all) == 1 && len(kept) == 0 && change.single == nil {
			return change.list // the list of the source takes no memory
		}
		added = change.append(added)
	}
	slices.SortFunc(added, compareEndpoints)
	return mergeSorted(kept, added)
}

// replaces reports whether an earlier endpoint of the source is replaced or
// deleted.
func (e *edit) replaces(addr netip.Addr) bool {
	_, single := e.single[addr]
	return e.whole || single
}

// append appends the endpoints that the edit sets.
func (e *edit) append(to []*cluster.Endpoint) []*cluster.Endpoint {
	for _, endpoint := range e.list {
		if _, single := e.single[endpoint.Addr]; !single {
			to = append(to, endpoint)
		}
	}
	for _, endpoint := range e.single {
		if endpoint != nil {
			to = append(to, endpoint)
		}
	}
	return to
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
