package proxier

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// tracker collects the changes of Services and EndpointSlices until the loop of
// each address family takes them. It holds only the last version of an object.
// Any goroutine can call its methods.
type tracker struct {
	config  *Config
	events  cluster.EventRecorder
	metrics *metrics
	started time.Time
	// onReplace is called with each new version of an EndpointSlice while mu is
	// locked (see follow.Followers.ReplaceSlice). nil means no calls.
	onReplace func(before, now *translate.EndpointSlice)

	mu sync.Mutex // guards all fields below
	// slices are the EndpointSlices of these families that have endpoints. The
	// source holds them too.
	slices map[translate.SliceName]*translate.EndpointSlice
	// empty are the Services of the other EndpointSlices. count is the number
	// of all EndpointSlices of a Service.
	empty       map[translate.SliceName]cluster.ServiceName
	count       map[cluster.ServiceName]int
	pending     map[nft.Family]*pending
	invalidNote map[string]string // last event about an object's invalid fields
	// Nothing is handed over before both first lists are complete.
	servicesSynced, slicesSynced bool
}

// sameEndpoints reports whether two EndpointSlices have equal endpoints of the
// same Service. nil stands for one without endpoints.
func sameEndpoints(a, b *translate.EndpointSlice) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Service == b.Service && slices.EqualFunc(a.Endpoints, b.Endpoints, (*cluster.Endpoint).Equal)
}

// maxTriggers limits the number of triggers that are kept, for the metric
// network_programming_duration_seconds, while syncs fail. Later ones are not
// observed.
const maxTriggers = 10_000

func newTracker(config *Config, events cluster.EventRecorder, m *metrics, families ...nft.Family) *tracker {
	t := &tracker{
		config:      config,
		events:      events,
		metrics:     m,
		started:     time.Now(),
		slices:      make(map[translate.SliceName]*translate.EndpointSlice),
		empty:       make(map[translate.SliceName]cluster.ServiceName),
		count:       make(map[cluster.ServiceName]int),
		pending:     make(map[nft.Family]*pending),
		invalidNote: make(map[string]string),
	}
	for _, f := range families {
		t.pending[f] = newPending(f)
		t.pending[f].node = true
	}
	return t
}

// setService records a Service that is new, changed, or deleted: then it has
// nothing but a name. All sources call it, so it applies the configuration to
// Services.
func (t *tracker) setService(svc *translate.Service) {
	t.mu.Lock()
	defer t.mu.Unlock()
	spec, unsupported := t.configured(svc.Service)
	t.metrics.serviceChanges.total.Inc()
	for _, p := range t.pending {
		p.setService(svc.Name, spec)
	}
	t.countPending()
	t.report(cluster.Event{
		Kind: "Service", Namespace: svc.Name.Namespace, Name: svc.Name.Name, UID: svc.UID,
	}, append(slices.Clip(svc.Problems), unsupported...))
}

// configured returns the Service that the configuration makes of svc, and the
// fields that this node does not support. It does not modify svc, which the
// source may keep.
func (t *tracker) configured(svc *cluster.Service) (spec *cluster.Service, unsupported []error) {
	if svc == nil {
		return nil, nil
	}
	noExternalIPs := t.config.IgnoreExternalIPs && len(svc.ExternalIPs) > 0
	noHash := t.config.NoHash && svc.Balance != cluster.BalanceRandom
	noCheck := !t.config.HealthChecks && svc.HealthCheck != nil
	if !noExternalIPs && !noHash && !noCheck {
		return svc, nil
	}
	without := *svc
	if noExternalIPs {
		without.ExternalIPs = nil
	}
	if noHash {
		without.Balance = cluster.BalanceRandom
		unsupported = append(unsupported, fmt.Errorf("metadata.annotations[%s]: the kernel of node %s has no nft_hash",
			translate.AnnotationBalance, t.config.NodeName))
	}
	if noCheck {
		without.HealthCheck = nil
		unsupported = append(unsupported, fmt.Errorf("metadata.annotations[%s]: it has no effect in a cluster, where "+
			"kubelets check whether pods are ready", translate.AnnotationHealthCheck))
	}
	return &without, unsupported
}

// setSlice records an EndpointSlice that is new, changed, or deleted: then it
// has nothing but a name.
func (t *tracker) setSlice(slice *translate.EndpointSlice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replaceSlice(slice)
	t.report(cluster.Event{
		Kind: "EndpointSlice", Namespace: slice.Name.Namespace, Name: slice.Name.Name, UID: slice.UID,
	}, slice.Problems)
}

// countPending updates the metrics of changes that a family has not taken yet.
func (t *tracker) countPending() {
	services, changedSlices := 0, 0
	for _, p := range t.pending {
		services, changedSlices = max(services, p.services), changedSlices+p.slices
	}
	t.metrics.serviceChanges.pending.Set(float64(services))
	t.metrics.endpointChanges.pending.Set(float64(changedSlices))
}

// replaceSlice records the new version of a slice, and reports whether
// endpoints change. An equal version is replaced too, because the source may
// keep the new one: then the memory of the old one can be freed.
func (t *tracker) replaceSlice(now *translate.EndpointSlice) (changed bool) {
	t.metrics.endpointChanges.total.Inc()
	name, triggered := now.Name, now.Triggered
	before, of := t.slices[name], now.Service
	if len(now.Endpoints) == 0 || t.pending[now.Family] == nil {
		now = nil
	}
	t.countSlice(name, before, now, of)
	if now == before {
		return false
	}
	if t.onReplace != nil {
		t.onReplace(before, now)
	}
	var c *change
	if before != nil {
		c = t.pending[before.Family].setSlice(before, true)
	}
	if now == nil {
		delete(t.slices, name)
	} else {
		t.slices[name] = now
		to := t.pending[now.Family].setSlice(now, false)
		if c != nil && c.name != to.name {
			c.moved, to.moved = append(c.moved, to.name), append(to.moved, c.name)
		}
		c = to
	}
	changed = !sameEndpoints(now, before)
	// The delay of a change before the start is not ours.
	p := t.pending[cmp.Or(now, before).Family]
	if changed && triggered.After(t.started) && p.triggers < maxTriggers {
		c.triggers = append(c.triggers, triggered)
		p.triggers++
	}
	t.countPending()
	return changed
}

// countSlice counts a slice for the Service that it belongs to, instead of the
// one before. A version without endpoints is nil.
func (t *tracker) countSlice(name translate.SliceName, before, now *translate.EndpointSlice, of cluster.ServiceName) {
	last := t.empty[name]
	if before != nil {
		last = before.Service
	}
	if t.count[last]--; t.count[last] <= 0 {
		delete(t.count, last)
	}
	delete(t.empty, name)
	if of == (cluster.ServiceName{}) { // deleted, or without the label
		return
	}
	if t.count[of]++; now == nil {
		t.empty[name] = of
	}
}

// hasSlice reports whether a Service has an EndpointSlice.
func (t *tracker) hasSlice(service cluster.ServiceName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count[service] > 0
}

// nodeChanged records that this node changed.
func (t *tracker) nodeChanged() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pending {
		p.node = true
	}
}

// report records an event about the problems of an object, once for the same
// problems. Without problems, it forgets the object.
func (t *tracker) report(e cluster.Event, problems []error) {
	key := e.Kind + " " + e.Namespace + "/" + e.Name
	defer func() { t.metrics.invalidObjects.Set(float64(len(t.invalidNote))) }()
	if len(problems) == 0 {
		delete(t.invalidNote, key)
		return
	}
	list := strings.ReplaceAll(errors.Join(problems...).Error(), "\n", "; ")
	e.Reason, e.Note = cluster.ReasonInvalid, fmt.Sprintf("Ignoring invalid fields of %s: %s", key, list)
	if t.invalidNote[key] != e.Note {
		t.invalidNote[key] = e.Note
		t.events.Record(e)
	}
}

// synced records that a first list is complete.
func (t *tracker) synced(list *bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*list = true
}

// state reports whether both first lists are complete, and returns the number
// of objects with invalid fields.
func (t *tracker) state() (listed bool, invalid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servicesSynced && t.slicesSynced, len(t.invalidNote)
}

// late reports whether a family has to take changes.
func (t *tracker) late(f nft.Family) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servicesSynced && t.slicesSynced && !t.pending[f].isEmpty()
}

// take removes and returns changes of a family (see pending.take). If some are
// left, wait is the time until the family should take them.
func (t *tracker) take(f nft.Family, limit int, from holder) (c *changes, wait time.Duration, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pending[f]
	c = &changes{node: p.node}
	p.node = false
	c.services, wait = p.take(limit, from)
	slices.SortFunc(c.services, func(a, b *change) int { return a.name.Compare(b.name) })
	for _, of := range c.services {
		c.triggers = append(c.triggers, of.triggers...)
		for name, had := range of.slices {
			now := t.slices[name]
			switch {
			case now != nil && now.Family == f && now.Service == of.name:
				c.endpoints = append(c.endpoints, endpoints{of.name, name.Name, now.Endpoints})
			case had: // deleted, or of another Service now
				c.endpoints = append(c.endpoints, endpoints{of.name, name.Name, nil})
			}
		}
	}
	t.countPending()
	return c, wait, !p.isEmpty()
}

// changes are what a family takes.
type changes struct {
	node      bool
	services  []*change // sorted by name
	endpoints []endpoints
	triggers  []time.Time
}

// endpoints are those that a Service has from an EndpointSlice.
type endpoints struct {
	service   cluster.ServiceName
	source    string
	endpoints []*cluster.Endpoint
}

// passTo passes the changes to a Sink. node returns the present state of this
// node.
func (c *changes) passTo(to cluster.Sink, node func() *cluster.Node) {
	if c.node {
		to.SetNode(node())
	}
	for _, of := range c.services {
		switch {
		case of.spec != nil:
			to.SetService(of.spec)
		case of.set:
			to.DeleteService(of.name)
		}
	}
	for _, e := range c.endpoints {
		to.SetEndpoints(e.service, e.source, e.endpoints)
	}
}
