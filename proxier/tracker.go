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

// tracker collects the changes of Services and EndpointSlices until they are
// passed to a Sink. Any goroutine can call its methods.
type tracker struct {
	config   *Config
	events   cluster.EventRecorder
	metrics  *metrics
	started  time.Time
	families []nft.Family // that are served

	mu sync.Mutex // guards all fields below
	// services are the Services that changed since the last handover. nil
	// stands for a deleted one.
	services  map[cluster.ServiceName]*cluster.Service
	nodeIsNew bool
	// slices are the EndpointSlices that have endpoints. The source holds them
	// too.
	slices map[translate.SliceName]*translate.EndpointSlice
	// slicesBefore are the versions at the last handover of those that changed
	// since. nil stands for one without endpoints.
	slicesBefore map[translate.SliceName]*translate.EndpointSlice
	triggers     map[nft.Family][]time.Time // of the changes since the last handover
	invalidNote  map[string]string          // last event about an object's invalid fields
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

func newTracker(config *Config, events cluster.EventRecorder, m *metrics, families ...nft.Family) *tracker {
	return &tracker{
		config:       config,
		events:       events,
		metrics:      m,
		started:      time.Now(),
		families:     families,
		services:     make(map[cluster.ServiceName]*cluster.Service),
		slices:       make(map[translate.SliceName]*translate.EndpointSlice),
		slicesBefore: make(map[translate.SliceName]*translate.EndpointSlice),
		triggers:     make(map[nft.Family][]time.Time),
		invalidNote:  make(map[string]string),
	}
}

// setService records a Service that is new or changed. All sources call it, so
// it applies the configuration to Services.
func (t *tracker) setService(svc *translate.Service) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.services[svc.Name] = t.configured(svc.Service)
	t.serviceChanged()
	t.report(cluster.Event{
		Kind: "Service", Namespace: svc.Name.Namespace, Name: svc.Name.Name, UID: svc.UID,
	}, svc.Problems)
}

// configured returns the Service that the configuration makes of svc. It does
// not modify svc, which the source may keep.
func (t *tracker) configured(svc *cluster.Service) *cluster.Service {
	if svc == nil || !t.config.IgnoreExternalIPs || len(svc.ExternalIPs) == 0 {
		return svc
	}
	without := *svc
	without.ExternalIPs = nil
	return &without
}

// deleteService records that a Service was deleted.
func (t *tracker) deleteService(name cluster.ServiceName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.services[name] = nil
	t.serviceChanged()
	t.report(cluster.Event{Kind: "Service", Namespace: name.Namespace, Name: name.Name}, nil)
}

// setSlice records an EndpointSlice that is new or changed.
func (t *tracker) setSlice(slice *translate.EndpointSlice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := t.replaceSlice(slice.Name, slice)
	// The delay of a change before the start is not ours.
	if changed && slice.Triggered.After(t.started) && slices.Contains(t.families, slice.Family) {
		t.triggers[slice.Family] = append(t.triggers[slice.Family], slice.Triggered)
	}
	t.report(cluster.Event{
		Kind: "EndpointSlice", Namespace: slice.Name.Namespace, Name: slice.Name.Name, UID: slice.UID,
	}, slice.Problems)
}

// deleteSlice records that an EndpointSlice was deleted.
func (t *tracker) deleteSlice(name translate.SliceName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replaceSlice(name, nil)
	t.report(cluster.Event{Kind: "EndpointSlice", Namespace: name.Namespace, Name: name.Name}, nil)
}

// serviceChanged counts a change of a Service.
func (t *tracker) serviceChanged() {
	t.metrics.serviceChanges.total.Inc()
	t.metrics.serviceChanges.pending.Set(float64(len(t.services)))
}

// replaceSlice records the new version of a slice, nil if it was deleted, and
// reports whether endpoints change. An equal version is replaced too, because
// the source may keep the new one: then the memory of the old one can be freed.
func (t *tracker) replaceSlice(name translate.SliceName, now *translate.EndpointSlice) (changed bool) {
	t.metrics.endpointChanges.total.Inc()
	before := t.slices[name]
	if now != nil && len(now.Endpoints) == 0 {
		now = nil
	}
	if now == before {
		return false
	}
	if _, known := t.slicesBefore[name]; !known {
		t.slicesBefore[name] = before
	}
	if now == nil {
		delete(t.slices, name)
	} else {
		t.slices[name] = now
	}
	if sameEndpoints(now, before) {
		return false
	}
	t.metrics.endpointChanges.pending.Inc()
	return true
}

// nodeChanged records that this node changed.
func (t *tracker) nodeChanged() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodeIsNew = true
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

// ready reports whether both first lists are complete.
func (t *tracker) ready() bool {
	ready, _ := t.state()
	return ready
}

// state reports whether both first lists are complete, and returns the number
// of objects with invalid fields.
func (t *tracker) state() (listed bool, invalid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servicesSynced && t.slicesSynced, len(t.invalidNote)
}

// handOver passes all changes to a Sink. node returns the present state of this
// node.
func (t *tracker) handOver(to cluster.Sink, node func() *cluster.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodeIsNew {
		to.SetNode(node())
	}
	for _, name := range slices.SortedFunc(maps.Keys(t.services), cluster.ServiceName.Compare) {
		if svc := t.services[name]; svc != nil {
			to.SetService(svc)
		} else {
			to.DeleteService(name)
		}
	}
	for name, before := range t.slicesBefore {
		now := t.slices[name]
		if before != nil && (now == nil || before.Service != now.Service) {
			to.SetEndpoints(before.Service, name.Name, nil)
		}
		if now != nil {
			to.SetEndpoints(now.Service, name.Name, now.Endpoints)
		}
	}
	t.metrics.serviceChanges.pending.Set(0)
	t.metrics.endpointChanges.pending.Set(0)
	t.nodeIsNew = false
	t.services = make(map[cluster.ServiceName]*cluster.Service)
	t.slicesBefore = make(map[translate.SliceName]*translate.EndpointSlice)
}

// takeTriggers returns and removes the triggers of a family.
func (t *tracker) takeTriggers(f nft.Family) []time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.triggers[f]
	t.triggers[f] = nil
	return taken
}
