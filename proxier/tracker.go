package proxier

import (
	"errors"
	"fmt"
	"maps"
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
	slices      map[translate.SliceName]*translate.EndpointSlice
	pending     map[nft.Family]*pending
	invalidNote map[string]string // last event about an object's invalid fields
	// Nothing is handed over before both first lists are complete.
	servicesSynced, slicesSynced bool
}

// pending are the changes that a family has not taken yet.
type pending struct {
	node bool
	// services are the Services that changed. nil stands for a deleted one.
	services map[cluster.ServiceName]*cluster.Service
	// slices are the EndpointSlices that changed. The value is the Service that
	// each of them belonged to when the family took it last. It is zero if the
	// slice had no endpoints.
	slices   map[translate.SliceName]cluster.ServiceName
	triggers []time.Time
	// versions are the taken EndpointSlices that have endpoints.
	versions []*translate.EndpointSlice
}

func newPending() *pending {
	return &pending{
		services: make(map[cluster.ServiceName]*cluster.Service),
		slices:   make(map[translate.SliceName]cluster.ServiceName),
	}
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
		pending:     make(map[nft.Family]*pending),
		invalidNote: make(map[string]string),
	}
	for _, f := range families {
		t.pending[f] = newPending()
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
		p.services[svc.Name] = spec
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
	if !noExternalIPs && !noHash {
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
	return &without, unsupported
}

// setSlice records an EndpointSlice that is new, changed, or deleted: then it
// has nothing but a name.
func (t *tracker) setSlice(slice *translate.EndpointSlice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := t.replaceSlice(slice)
	// The delay of a change before the start is not ours.
	p := t.pending[slice.Family]
	if changed && slice.Triggered.After(t.started) && p != nil && len(p.triggers) < maxTriggers {
		p.triggers = append(p.triggers, slice.Triggered)
	}
	t.report(cluster.Event{
		Kind: "EndpointSlice", Namespace: slice.Name.Namespace, Name: slice.Name.Name, UID: slice.UID,
	}, slice.Problems)
}

// countPending updates the metrics of changes that a family has not taken yet.
func (t *tracker) countPending() {
	services, changedSlices := 0, 0
	for _, p := range t.pending {
		services, changedSlices = max(services, len(p.services)), changedSlices+len(p.slices)
	}
	t.metrics.serviceChanges.pending.Set(float64(services))
	t.metrics.endpointChanges.pending.Set(float64(changedSlices))
}

// replaceSlice records the new version of a slice, and reports whether
// endpoints change. An equal version is replaced too, because the source may
// keep the new one: then the memory of the old one can be freed.
func (t *tracker) replaceSlice(now *translate.EndpointSlice) (changed bool) {
	t.metrics.endpointChanges.total.Inc()
	name := now.Name
	before := t.slices[name]
	if len(now.Endpoints) == 0 || t.pending[now.Family] == nil {
		now = nil
	}
	if now == before {
		return false
	}
	if t.onReplace != nil {
		t.onReplace(before, now)
	}
	if before != nil {
		t.pending[before.Family].replaced(name, before.Service)
	}
	if now == nil {
		delete(t.slices, name)
	} else {
		t.slices[name] = now
		t.pending[now.Family].replaced(name, cluster.ServiceName{})
	}
	t.countPending()
	return !sameEndpoints(now, before)
}

// replaced records that a slice was replaced, which belonged to a Service.
func (p *pending) replaced(name translate.SliceName, before cluster.ServiceName) {
	if _, known := p.slices[name]; !known {
		p.slices[name] = before
	}
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
	p := t.pending[f]
	return t.servicesSynced && t.slicesSynced && (p.node || len(p.services)+len(p.slices) > 0)
}

// take returns and removes the pending changes of a family.
func (t *tracker) take(f nft.Family) *pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pending[f]
	t.pending[f] = newPending()
	for name := range p.slices {
		if now := t.slices[name]; now != nil && now.Family == f {
			p.versions = append(p.versions, now)
		}
	}
	t.countPending()
	return p
}

// passTo passes the changes to a Sink. node returns the present state of this
// node.
func (p *pending) passTo(to cluster.Sink, node func() *cluster.Node) {
	if p.node {
		to.SetNode(node())
	}
	for _, name := range slices.SortedFunc(maps.Keys(p.services), cluster.ServiceName.Compare) {
		if svc := p.services[name]; svc != nil {
			to.SetService(svc)
		} else {
			to.DeleteService(name)
		}
	}
	for _, now := range p.versions {
		if p.slices[now.Name] == now.Service {
			delete(p.slices, now.Name)
		}
		to.SetEndpoints(now.Service, now.Name.Name, now.Endpoints)
	}
	for name, before := range p.slices { // deleted, or of another Service now
		if before != (cluster.ServiceName{}) {
			to.SetEndpoints(before, name.Name, nil)
		}
	}
}
