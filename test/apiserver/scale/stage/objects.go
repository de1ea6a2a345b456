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
)

// Names, numbers and ports of the objects.
const (
	NamespaceName = "scale"
	MaxServices   = 60_000 // more can be there for a while, whose numbers begin here
	ServicePort   = 80
	TargetPort    = 8080
	portName      = "http"
	nodes         = 1000 // that the endpoints are on; none of them is that of a proxy
)

// ClusterCIDR holds all endpoints.
const ClusterCIDR = "10.128.0.0/9"

// Endpoints returns those of a Service that has that many.
func Endpoints(service, endpoints int) []netip.Addr {
	addrs := make([]netip.Addr, endpoints)
	for i := range addrs {
		addrs[i] = Nth(netip.AddrFrom4([4]byte{10, 128, 0, 1}), uint32(service*endpoints+i))
	}
	return addrs
}

// Frontend is where a Service is served.
func Frontend(service int) netip.AddrPort {
	return netip.AddrPortFrom(Nth(netip.AddrFrom4([4]byte{10, 96, 1, 0}), uint32(service)), ServicePort)
}

// Nth returns the IPv4 address that lies n above the first.
func Nth(first netip.Addr, n uint32) netip.Addr {
	base := first.As4()
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(base[:])+n)))
}

// ServiceName is the name of a Service and of its EndpointSlice.
func ServiceName(service int) string { return fmt.Sprintf("service-%05d", service) }

// NewService returns the object of a Service.
func NewService(service int) *corev1.Service {
	name := ServiceName(service)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: NamespaceName, Labels: map[string]string{"app": name}},
		Spec: corev1.ServiceSpec{
			ClusterIP: Frontend(service).Addr().String(),
			Selector:  map[string]string{"app": name},
			Ports:     []corev1.ServicePort{{Name: portName, Port: ServicePort, TargetPort: intstr.FromInt32(TargetPort)}},
		},
	}
}

// newIPAddress returns the note of the API server that a Service has its ClusterIP.
func newIPAddress(service int) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: Frontend(service).Addr().String(),
			Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: string(corev1.IPv4Protocol), networkingv1.LabelManagedBy: "ipallocator.k8s.io",
			},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: NamespaceName, Name: ServiceName(service),
		}},
	}
}

// NewSlice returns the EndpointSlice of a Service as the controller makes it.
func NewSlice(service int, addrs []netip.Addr) *discoveryv1.EndpointSlice {
	name := ServiceName(service)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: NamespaceName,
			Labels: map[string]string{
				"app": name, discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: name, UID: uid(0, service), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(portName), Port: ptr.To[int32](TargetPort), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, addr := range addrs {
		slice.Endpoints = append(slice.Endpoints, newEndpoint(name, addr))
	}
	return slice
}

func newEndpoint(service string, addr netip.Addr) discoveryv1.Endpoint {
	bytes := addr.As4()
	n := int(binary.BigEndian.Uint32(bytes[:]))
	return discoveryv1.Endpoint{
		Addresses:  []string{addr.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		NodeName:   ptr.To(fmt.Sprintf("node-%03d", n%nodes)),
		Zone:       ptr.To(fmt.Sprintf("zone-%c", 'a'+n%3)),
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: NamespaceName, Name: fmt.Sprintf("%s-%08x", service, n), UID: uid(1, n),
		},
	}
}

func uid(kind, n int) types.UID { return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, n)) }
