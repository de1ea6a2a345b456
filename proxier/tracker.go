package proxier

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// tracker is the front end: it translates what the API says into what a Sink understands, and keeps what changed until
// it is handed over. Its methods can be called by any goroutine.
type tracker struct {
	config  *Config
	metrics *metrics
	started time.Time
	// families are those that are served.
	families []nft.Family

	mu sync.Mutex // guards what follows
	// What changed since the last handover; nil stands for what is gone.
	services map[ServiceName]*Service
	newNode  bool
	// handedOver is what slices that changed since the last handover said then.
	handedOver map[SliceName]sliceState
	// triggers are when the changes of EndpointSlices were triggered, as these tell.
	triggers map[nft.Family][]time.Time
	// slices are what EndpointSlices say, but for those without endpoints.
	slices map[SliceName]sliceState
	// problems that were reported, by object.
	reported map[string]string
	// Nothing is handed over before the first full lists of both were told.
	servicesSynced, slicesSynced bool
}

type sliceState struct {
	service   ServiceName
	endpoints []*Endpoint // sorted by address
}

// is says whether it is the same state, told again.
func (s sliceState) is(o sliceState) bool {
	return s.service == o.service && len(s.endpoints) == len(o.endpoints) && (len(s.endpoints) == 0 || &s.endpoints[0] == &o.endpoints[0])
}

func (s sliceState) equal(o sliceState) bool {
	return s.service == o.service && slices.EqualFunc(s.endpoints, o.endpoints, (*Endpoint).equal)
}

func newTracker(config *Config, m *metrics, families ...nft.Family) *tracker {
	return &tracker{
		config:     config,
		metrics:    m,
		started:    time.Now(),
		families:   families,
		triggers:   make(map[nft.Family][]time.Time),
		services:   make(map[ServiceName]*Service),
		handedOver: make(map[SliceName]sliceState),
		slices:     make(map[SliceName]sliceState),
		reported:   make(map[string]string),
	}
}

// setService records a Service that is new or changed. Every source calls it, so
// it is the place where the configuration is applied to Services.
func (t *tracker) setService(svc *TranslatedService) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.services[svc.Name] = t.served(svc.service)
	t.serviceChanged()
	t.report(Event{Kind: "Service", Namespace: svc.Name.Namespace, Name: svc.Name.Name, UID: svc.uid}, svc.problems)
}

// served returns the part of a Service that the configuration has served. It
// does not modify svc, which the source may keep.
func (t *tracker) served(svc *Service) *Service {
	if svc == nil || !t.config.IgnoreExternalIPs || len(svc.ExternalIPs) == 0 {
		return svc
	}
	without := *svc
	without.ExternalIPs = nil
	return &without
}

// deleteService notes that a Service is gone.
func (t *tracker) deleteService(name ServiceName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.services[name] = nil
	t.serviceChanged()
	t.report(Event{Kind: "Service", Namespace: name.Namespace, Name: name.Name}, nil)
}

// setSlice notes an EndpointSlice that is new or changed.
func (t *tracker) setSlice(slice *TranslatedEndpointSlice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// What was triggered before we watched says nothing about us.
	if t.replaceSlice(slice.Name, slice.sliceState) && slice.triggered.After(t.started) && slices.Contains(t.families, slice.family) {
		t.triggers[slice.family] = append(t.triggers[slice.family], slice.triggered)
	}
	t.report(Event{Kind: "EndpointSlice", Namespace: slice.Name.Namespace, Name: slice.Name.Name, UID: slice.uid}, slice.problems)
}

// deleteSlice notes that an EndpointSlice is gone.
func (t *tracker) deleteSlice(name SliceName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replaceSlice(name, sliceState{})
	t.report(Event{Kind: "EndpointSlice", Namespace: name.Namespace, Name: name.Name}, nil)
}

// serviceChanged counts a change of a Service.
func (t *tracker) serviceChanged() {
	t.metrics.kubeProxy.serviceChanges.total.Inc()
	t.metrics.kubeProxy.serviceChanges.pending.Set(float64(len(t.services)))
}

// replaceSlice notes the new state of a slice, and says whether endpoints come, change or go with it. What is equal is replaced too: whoever told it may keep
// the new state, and the old one is to be let go.
func (t *tracker) replaceSlice(name SliceName, now sliceState) (changed bool) {
	t.metrics.kubeProxy.endpointChanges.total.Inc()
	before := t.slices[name]
	if len(now.endpoints) == 0 {
		now = sliceState{}
	}
	if now.is(before) {
		return false
	}
	if _, known := t.handedOver[name]; !known {
		t.handedOver[name] = before
	}
	if len(now.endpoints) == 0 {
		delete(t.slices, name)
	} else {
		t.slices[name] = now
	}
	if now.equal(before) {
		return false
	}
	t.metrics.kubeProxy.endpointChanges.pending.Inc()
	return true
}

// nodeChanged notes that something about this node changed.
func (t *tracker) nodeChanged() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newNode = true
}

// report tells the owner of an object once what of it was left out. Without problems it forgets the object.
func (t *tracker) report(e Event, problems []error) {
	key := e.Kind + " " + e.Namespace + "/" + e.Name
	defer func() { t.metrics.invalidObjects.Store(int64(len(t.reported))) }()
	if len(problems) == 0 {
		delete(t.reported, key)
		return
	}
	e.Reason, e.Note = ReasonInvalid, fmt.Sprintf("%s is served without what makes no sense: %v", key, joinErrors(problems))
	if t.reported[key] != e.Note {
		t.reported[key] = e.Note
		recordEvent(t.config.Events, e)
	}
}

func joinErrors(errs []error) string {
	s := errs[0].Error()
	for _, err := range errs[1:] {
		s += "; " + err.Error()
	}
	return s
}

// synced notes that a first full list was told: of Services or of EndpointSlices.
func (t *tracker) synced(list *bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*list = true
}

// ready says whether the first full lists were told.
func (t *tracker) ready() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servicesSynced && t.slicesSynced
}

// handOver tells a sink what changed. node returns what is known about this node.
func (t *tracker) handOver(to Sink, node func() *Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.newNode {
		to.SetNode(node())
	}
	for _, name := range sortedNames(t.services) {
		if svc := t.services[name]; svc != nil {
			to.SetService(svc)
		} else {
			to.DeleteService(name)
		}
	}
	for name, before := range t.handedOver {
		now := t.slices[name]
		if before.endpoints != nil && before.service != now.service {
			to.SetEndpoints(before.service, name.Name, nil)
		}
		if now.endpoints != nil {
			to.SetEndpoints(now.service, name.Name, now.endpoints)
		}
	}
	t.metrics.kubeProxy.serviceChanges.pending.Set(0)
	t.metrics.kubeProxy.endpointChanges.pending.Set(0)
	t.newNode = false
	t.services = make(map[ServiceName]*Service)
	t.handedOver = make(map[SliceName]sliceState)
}

// takeTriggers returns when the changes of a family were triggered that were not handed over before.
func (t *tracker) takeTriggers(f nft.Family) []time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.triggers[f]
	t.triggers[f] = nil
	return taken
}

func sortedNames(services map[ServiceName]*Service) []ServiceName {
	names := make([]ServiceName, 0, len(services))
	for n := range services {
		names = append(names, n)
	}
	slices.SortFunc(names, compareServiceNames)
	return names
}
