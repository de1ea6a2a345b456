package stage

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/apiserver/random"
	"github.com/nftproxy/nftproxy/test/lab"
)

// Names, numbers and ports of the objects. A Service is a number from 0; its
// name and addresses follow from it.
const (
	NamespaceName = "bench"
	MaxServices   = 60_000 // benchmarks use larger numbers for a few others
	ServicePort   = 80
	TargetPort    = 8080
)

// ClusterCIDR contains all endpoints.
const ClusterCIDR = "10.128.0.0/9"

var endpointRange = netip.MustParsePrefix(ClusterCIDR)

// Endpoints returns the endpoints of a Service that has that many.
func Endpoints(service, endpoints int) []netip.Addr {
	addrs := make([]netip.Addr, endpoints)
	for i := range addrs {
		addrs[i] = lab.AddrIn(endpointRange, 1+service*endpoints+i)
	}
	return addrs
}

// Frontend returns the ClusterIP and port of a Service.
func Frontend(service int) netip.AddrPort {
	return netip.AddrPortFrom(lab.AddrIn(lab.ServiceRanges()[0], 256+service), ServicePort)
}

// Frontends returns the frontends of the Services from 0.
func Frontends(services int) []netip.AddrPort {
	all := make([]netip.AddrPort, services)
	for i := range all {
		all[i] = Frontend(i)
	}
	return all
}

// ServiceName returns the name of a Service and of its EndpointSlice.
func ServiceName(service int) string { return fmt.Sprintf("service-%05d", service) }

// NewService returns a Service.
func NewService(service int) *corev1.Service {
	name := ServiceName(service)
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: NamespaceName, Labels: appLabel(name)}}
	s.Spec.ClusterIP, s.Spec.Selector = Frontend(service).Addr().String(), appLabel(name)
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: ServicePort, TargetPort: intstr.FromInt32(TargetPort)}}
	return s
}

func appLabel(name string) map[string]string { return map[string]string{"app": name} }

// newIPAddress returns the object by which the API server allocates a
// ClusterIP.
func newIPAddress(service int) *networkingv1.IPAddress {
	ip := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: Frontend(service).Addr().String()}}
	ip.Labels = map[string]string{
		networkingv1.LabelIPAddressFamily: string(corev1.IPv4Protocol),
		networkingv1.LabelManagedBy:       "ipallocator.k8s.io",
	}
	ip.Spec.ParentRef = &networkingv1.ParentReference{
		Resource: "services", Namespace: NamespaceName, Name: ServiceName(service),
	}
	return ip
}

// NewSlice returns the EndpointSlice of a Service as the controller makes it.
func NewSlice(service int, addrs []netip.Addr) *discoveryv1.EndpointSlice {
	name := ServiceName(service)
	slice := random.NewSlice(name, name, 0)
	slice.Namespace = NamespaceName
	slice.Labels["app"], slice.Labels[discoveryv1.LabelManagedBy] = name, "endpointslice-controller.k8s.io"
	changed := time.Now().UTC().Format(time.RFC3339Nano)
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: changed}
	slice.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Service", Name: name, UID: uid(0, service),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	slice.Ports = []discoveryv1.EndpointPort{{
		Name: ptr.To("http"), Port: ptr.To[int32](TargetPort), Protocol: ptr.To(corev1.ProtocolTCP),
	}}
	for _, addr := range addrs {
		bytes := addr.As4()
		n := int(binary.BigEndian.Uint32(bytes[:]))
		e := random.AddEndpoint(slice, addr)
		e.Conditions.Ready, e.Conditions.Serving, e.Conditions.Terminating = ptr.To(true), ptr.To(true), ptr.To(false)
		e.NodeName = ptr.To(fmt.Sprintf("node-%03d", n%1000)) // none of them has a proxy
		e.Zone = ptr.To(fmt.Sprintf("zone-%c", 'a'+n%3))
		pod := fmt.Sprintf("%s-%08x", name, n)
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: NamespaceName, Name: pod, UID: uid(1, n)}
	}
	return slice
}

func uid(kind, n int) types.UID { return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, n)) }
