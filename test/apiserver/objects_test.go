package apiserver

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
)

// port is the port of all services here.
const port = 80

// newNode returns the Node object of a node.
func newNode(node *lab.Node) *corev1.Node {
	labels := map[string]string{corev1.LabelHostname: node.Name}
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: labels}}
	for _, prefix := range node.PodRanges {
		out.Spec.PodCIDRs = append(out.Spec.PodCIDRs, prefix.String())
	}
	out.Spec.PodCIDR = out.Spec.PodCIDRs[0]
	out.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: node.Name},
		{Type: corev1.NodeInternalIP, Address: node.IPv4.String()},
		{Type: corev1.NodeInternalIP, Address: node.IPv6.String()},
	}
	return out
}

// createNode creates the Node object of a node.
func (w *world) createNode(node *lab.Node) {
	w.t.Helper()
	w.create(newNode(node))
}

// create creates a Node. The API server keeps the status of a created Node.
func (w *world) create(node *corev1.Node) {
	w.t.Helper()
	_, err := w.Admin().CoreV1().Nodes().Create(w.ctx(), node, metav1.CreateOptions{})
	w.must(err)
}

// service is an existing Service with TCP and UDP at port 80 in both
// families.
type service struct {
	*corev1.Service
	w *world
}

// createService creates a Service of type NodePort with these endpoints,
// after the modifiers have changed it.
func (w *world) createService(name, endpoints string, modifiers ...func(*corev1.Service)) *service {
	w.t.Helper()
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceTypeNodePort,
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(target)},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: port, TargetPort: intstr.FromInt32(target)},
			},
		},
	}
	for _, modify := range modifiers {
		modify(object)
	}
	created, err := w.client.CoreV1().Services(metav1.NamespaceDefault).Create(w.ctx(), object, metav1.CreateOptions{})
	w.must(err)
	s := &service{Service: created, w: w}
	s.setEndpoints(endpoints)
	return s
}

// lookUp returns a Service by its name.
func (w *world) lookUp(name string) *service {
	w.t.Helper()
	object, err := w.Admin().CoreV1().Services(metav1.NamespaceDefault).Get(w.ctx(), name, metav1.GetOptions{})
	w.must(err)
	return &service{Service: object, w: w}
}

// delete deletes the Service and its EndpointSlices.
func (s *service) delete() {
	w := s.w
	w.t.Helper()
	w.must(w.client.CoreV1().Services(s.Namespace).Delete(w.ctx(), s.Name, metav1.DeleteOptions{}))
	for f := range w.Node1.Addrs() {
		s.deleteSlice(f)
	}
}

// setEndpoints sets the Service's endpoints: names of pods, separated by
// spaces.
func (s *service) setEndpoints(pods string) {
	s.w.t.Helper()
	for f := range s.w.Node1.Addrs() {
		s.w.writeSlice(s.newSlice(f, strings.Fields(pods)))
	}
}

// writeSlice creates or updates an EndpointSlice.
func (w *world) writeSlice(slice *discoveryv1.EndpointSlice) {
	w.t.Helper()
	api := w.client.DiscoveryV1().EndpointSlices(slice.Namespace)
	_, err := api.Update(w.ctx(), slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(w.ctx(), slice, metav1.CreateOptions{})
	}
	w.must(err)
}

// deleteSlice deletes the EndpointSlice of a family.
func (s *service) deleteSlice(f int) {
	s.w.t.Helper()
	api := s.w.client.DiscoveryV1().EndpointSlices(s.Namespace)
	s.w.must(api.Delete(s.w.ctx(), s.sliceName(f), metav1.DeleteOptions{}))
}

// sliceName returns the name of the EndpointSlice of a family: 0 is IPv4, 1
// is IPv6.
func (s *service) sliceName(f int) string { return fmt.Sprintf("%s-%d", s.Name, f) }

func (s *service) newSlice(f int, pods []string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.sliceName(f), Namespace: s.Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name},
		},
		AddressType: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}[f],
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("tcp"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](target)},
			{Name: ptr.To("udp"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To[int32](target)},
		},
	}
	for _, name := range pods {
		pod := s.w.pods[name]
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{pod.Addrs()[f].String()},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true),
				Terminating: ptr.To(false)},
			NodeName: ptr.To(pod.Node.Name),
		})
	}
	return slice
}

// frontends returns the frontends of a kind, with the NodePorts at node1.
func (s *service) frontends(kind frontend.Kind) []frontend.Frontend {
	all := frontend.Of(s.Service, s.w.Node1.Addrs()...)
	return slices.DeleteFunc(all, func(f frontend.Frontend) bool { return f.Kind != kind })
}

// clusterIPs returns the Service's ClusterIPs with its ports.
func (s *service) clusterIPs() []frontend.Frontend { return s.frontends(frontend.ClusterIP) }

// nodePorts returns the Service's NodePorts on node1.
func (s *service) nodePorts() []frontend.Frontend { return s.frontends(frontend.NodePort) }

// setLoadBalancerIPs sets the nth LoadBalancer IP of each family.
func (s *service) setLoadBalancerIPs(n int) {
	s.w.t.Helper()
	for _, prefix := range lab.ExternalRanges() {
		ip := prefix.Addr()
		for range n {
			ip = ip.Next()
		}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: ip.String()})
	}
	updated, err := s.w.Admin().CoreV1().Services(s.Namespace).UpdateStatus(s.w.ctx(), s.Service,
		metav1.UpdateOptions{})
	s.w.must(err)
	s.Service = updated
}

// loadBalancerIPs returns the Service's LoadBalancer IPs with its ports.
func (s *service) loadBalancerIPs() []frontend.Frontend { return s.frontends(frontend.LoadBalancerIP) }

// toBeDeleted returns the cluster autoscaler's taint of a node to be removed.
func toBeDeleted() corev1.Taint {
	return corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "1", Effect: corev1.TaintEffectNoSchedule}
}
