package manifest

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// change is one difference between what was delivered and what is wanted: an Add without old, a Delete
// without new, otherwise an Update.
type change struct {
	key      objectKey
	old, new runtime.Object
}

// changes returns what to deliver so that have becomes want, in the order of delivery. Objects that say the
// same are left alone, whichever file or document they come from.
//
// Whatever is added or updated comes before anything is deleted: when an object gets another name, or an
// address moves from one Service to another, it has an owner at every moment, and a receiver that looks before
// Sync finds it served twice rather than not at all. For the same reason EndpointSlices come before Services
// and go after them: no Service is seen without its endpoints.
func changes(have map[objectKey]runtime.Object, want map[objectKey]object) []change {
	var result []change
	for key, o := range want {
		if old := have[key]; old != o.value && !equality.Semantic.DeepEqual(old, o.value) {
			result = append(result, change{key: key, old: old, new: o.value})
		}
	}
	for key, old := range have {
		if _, found := want[key]; !found {
			result = append(result, change{key: key, old: old})
		}
	}
	slices.SortFunc(result, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.phase(), b.phase()), a.key.compare(b.key))
	})
	return result
}

// phase is the change's turn in a round.
func (c change) phase() int {
	kinds := []objectKind{kindNode, kindServiceCIDR, kindEndpointSlice, kindService}
	turn := slices.Index(kinds, c.key.Kind)
	if c.new == nil {
		return 2*len(kinds) - turn
	}
	return turn
}

// deliver calls the handler's method for the change, and tells whether there is one: ServiceCIDRs are delivered
// together, see serviceCIDRs.
func (c change) deliver(h Handler) bool {
	switch c.key.Kind {
	case kindService:
		dispatch(c, h.OnServiceAdd, h.OnServiceUpdate, h.OnServiceDelete)
	case kindEndpointSlice:
		dispatch(c, h.OnEndpointSliceAdd, h.OnEndpointSliceUpdate, h.OnEndpointSliceDelete)
	case kindNode:
		dispatch(c, h.OnNodeAdd, h.OnNodeUpdate, h.OnNodeDelete)
	default:
		return false
	}
	return true
}

// deliverable is the type of a kind that is delivered object by object.
type deliverable interface {
	*corev1.Service | *discoveryv1.EndpointSlice | *corev1.Node
	runtime.Object
}

func dispatch[T deliverable](c change, add func(T), update func(old, new T), remove func(T)) {
	switch {
	case c.old == nil:
		add(c.new.(T))
	case c.new == nil:
		remove(c.old.(T))
	default:
		update(c.old.(T), c.new.(T))
	}
}

// serviceCIDRs returns the CIDRs of all ServiceCIDR objects, sorted, each once.
func serviceCIDRs(objects iter.Seq[runtime.Object]) []string {
	cidrs := make(map[string]struct{})
	for value := range objects {
		if serviceCIDR, ok := value.(*networkingv1.ServiceCIDR); ok {
			for _, cidr := range serviceCIDR.Spec.CIDRs {
				cidrs[cidr] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(cidrs))
}
