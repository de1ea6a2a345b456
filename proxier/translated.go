package proxier

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/nft"
)

// TranslatedService is what a Proxier keeps of a Service of the API. A source that keeps objects can keep this in place of the API's,
// which takes a tenth of the memory.
type TranslatedService struct {
	Name ServiceName
	uid  string
	// service is nil for one that gets no traffic by way of a proxy.
	service *Service
	// problems are what makes no sense and is left out.
	problems []error
}

// TranslateService reads a Service of the API. Nothing of the object is kept.
func TranslateService(svc *corev1.Service) *TranslatedService {
	t := &TranslatedService{Name: ServiceName{svc.Namespace, svc.Name}, uid: string(svc.UID)}
	t.service, t.problems = serviceOf(svc)
	return t
}

// TranslatedEndpointSlice is what a Proxier keeps of an EndpointSlice of the API.
type TranslatedEndpointSlice struct {
	Name SliceName
	uid  string
	sliceState
	problems []error
	// family is that of the addresses, triggered when the change came about that this is the result of; zero if that is not said.
	family    nft.Family
	triggered time.Time
}

// SliceName names an EndpointSlice.
type SliceName struct{ Namespace, Name string }

// TranslateEndpointSlice reads an EndpointSlice of the API. Nothing of the object is kept.
func TranslateEndpointSlice(slice *discoveryv1.EndpointSlice) *TranslatedEndpointSlice {
	t := &TranslatedEndpointSlice{Name: SliceName{slice.Namespace, slice.Name}, uid: string(slice.UID), family: nft.IPv4}
	t.service, t.endpoints, t.problems = endpointsOf(slice)
	if slice.AddressType == discoveryv1.AddressTypeIPv6 {
		t.family = nft.IPv6
	}
	if at, err := time.Parse(time.RFC3339Nano, slice.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		t.triggered = at
	}
	return t
}
