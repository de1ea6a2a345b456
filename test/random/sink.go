package random

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Difference is an object that differs between two states.
type Difference struct {
	metav1.Object // the earlier one of a deletion
	Deleted       bool
}

// Differences returns the Services and EndpointSlices that lead from one state
// to the next, sorted by name, deletions first. before is nil at first.
func Differences(before, after *State) (all []Difference) {
	if before == nil {
		before = &State{}
	}
	old, wanted := before.objects(), after.objects()
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if wanted[name] == nil {
			all = append(all, Difference{old[name], true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !equality.Semantic.DeepEqual(old[name], wanted[name]) {
			all = append(all, Difference{wanted[name], false})
		}
	}
	return all
}

// objects returns the Services and EndpointSlices by name.
func (s *State) objects() map[string]metav1.Object {
	all := map[string]metav1.Object{}
	for _, a := range s.Apps {
		if service := a.Service(); service != nil {
			all[a.Name()] = service
		}
		for _, slice := range a.Slices() {
			all[slice.Name] = slice
		}
	}
	return all
}

// Pass passes what leads from one state to the next to a sink. before is nil
// at first.
func Pass(to cluster.Sink, before, after *State) {
	if before == nil || before.Node != after.Node {
		to.SetNode(after.Node)
	}
	for _, d := range Differences(before, after) {
		switch object := d.Object.(type) {
		case *corev1.Service:
			svc := translate.ParseService(object)
			if svc.Service == nil || d.Deleted {
				to.DeleteService(svc.Name)
			} else {
				to.SetService(svc.Service)
			}
		case *discoveryv1.EndpointSlice:
			s := translate.ParseEndpointSlice(object)
			if d.Deleted {
				s.Endpoints = nil
			}
			// A slice that must not be used replaces one that was used.
			s.Service = cluster.ServiceName{Namespace: Namespace, Name: object.Labels[discoveryv1.LabelServiceName]}
			to.SetEndpoints(s.Service, s.Name.Name, s.Endpoints)
		}
	}
}

// Served returns the objects that a proxy must serve: from the API, if the
// state was written there.
func (s *State) Served() (services []*cluster.Service, endpoints map[cluster.ServiceName][]*cluster.Endpoint) {
	endpoints = map[cluster.ServiceName][]*cluster.Endpoint{}
	for _, a := range s.Apps {
		service := cmp.Or(a.InAPI(), a.Service())
		if service != nil {
			if svc := translate.ParseService(service).Service; svc != nil {
				services = append(services, svc)
			}
		}
		for _, slice := range a.Slices() {
			s := translate.ParseEndpointSlice(slice)
			endpoints[s.Service] = append(endpoints[s.Service], s.Endpoints...)
		}
	}
	return services, endpoints
}

// YAML returns objects as text for messages.
func YAML(objects ...any) (text string) {
	for _, object := range objects {
		part, err := yaml.Marshal(object)
		if err != nil {
			return err.Error()
		}
		text += "---\n" + string(part)
	}
	return text
}
