package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
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
	namespaceName = "scale"
	portName      = "http"
	servicePort   = 80
	targetPort    = 8080
	nodes         = 1000 // that the endpoints are on; none of them is that of the proxy
	maxServices   = 60_000
)

// stock knows which Services there are and what endpoints they have. A Service is a number; the addresses of its endpoints follow from
// it unless they were changed.
type stock struct {
	endpoints int
	services  int                  // 0 to services-1 are there
	changed   map[int][]netip.Addr // endpoints of Services that were changed
	fresh     uint32               // addresses that changes brought
	extra     int                  // Services that came for a while, which have the numbers from maxServices
	witnesses []int                // those of them that are there
}

func newStock(endpoints int) *stock {
	return &stock{endpoints: endpoints, changed: map[int][]netip.Addr{}}
}

// clusterCIDR holds all endpoints.
const clusterCIDR = "10.128.0.0/9"

// addrs returns the endpoints of a Service.
func (s *stock) addrs(service int) []netip.Addr {
	if addrs, ok := s.changed[service]; ok {
		return slices.Clone(addrs)
	}
	addrs := make([]netip.Addr, s.endpoints)
	for i := range addrs {
		addrs[i] = nth("10.128.0.1", uint32(service*s.endpoints+i))
	}
	return addrs
}

// freshAddr returns the address of an endpoint that never was there.
func (s *stock) freshAddr() netip.Addr {
	s.fresh++
	return nth("10.192.0.0", s.fresh)
}

// freshAddrs returns the endpoints of a Service that never was there.
func (s *stock) freshAddrs() []netip.Addr {
	addrs := make([]netip.Addr, s.endpoints)
	for i := range addrs {
		addrs[i] = s.freshAddr()
	}
	return addrs
}

// extraService returns the number of a Service that never was there.
func (s *stock) extraService() int {
	s.extra++
	return maxServices + s.extra - 1
}

// frontend is where a Service is served.
func frontend(service int) netip.AddrPort {
	return netip.AddrPortFrom(nth("10.96.1.0", uint32(service)), servicePort)
}

// frontends returns those of all Services.
func (s *stock) frontends() []netip.AddrPort {
	all := make([]netip.AddrPort, s.services)
	for i := range all {
		all[i] = frontend(i)
	}
	return all
}

// nth returns the address that lies n above the first.
func nth(first string, n uint32) netip.Addr {
	base := netip.MustParseAddr(first).As4()
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(base[:])+n)))
}

func serviceName(service int) string { return fmt.Sprintf("service-%05d", service) }

// newService returns the object of a Service.
func newService(service int) *corev1.Service {
	name := serviceName(service)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespaceName, Labels: map[string]string{"app": name}},
		Spec: corev1.ServiceSpec{
			ClusterIP: frontend(service).Addr().String(),
			Selector:  map[string]string{"app": name},
			Ports:     []corev1.ServicePort{{Name: portName, Port: servicePort, TargetPort: intstr.FromInt32(targetPort)}},
		},
	}
}

// newIPAddress returns the note of the API server that a Service has its ClusterIP.
func newIPAddress(service int) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: frontend(service).Addr().String(),
			Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: string(corev1.IPv4Protocol), networkingv1.LabelManagedBy: "ipallocator.k8s.io",
			},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: namespaceName, Name: serviceName(service),
		}},
	}
}

// newSlice returns the EndpointSlice of a Service as the controller makes it.
func newSlice(service int, addrs []netip.Addr) *discoveryv1.EndpointSlice {
	name := serviceName(service)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespaceName,
			Labels: map[string]string{
				"app": name, discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: name, UID: uid(0, service), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(portName), Port: ptr.To[int32](targetPort), Protocol: ptr.To(corev1.ProtocolTCP)}},
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
			Kind: "Pod", Namespace: namespaceName, Name: fmt.Sprintf("%s-%08x", service, n), UID: uid(1, n),
		},
	}
}

func uid(kind, n int) types.UID { return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, n)) }
