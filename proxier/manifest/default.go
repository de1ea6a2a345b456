package manifest

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// defaultMeta sets the namespace: "default" if there is none, none for kinds that are not in a namespace,
// where the API server ignores it too.
func defaultMeta(kind objectKind, meta *metav1.ObjectMeta) objectKey {
	if kind.namespaced() {
		meta.Namespace = namespaceOr(meta.Namespace)
	} else {
		meta.Namespace = ""
	}
	return objectKey{Kind: kind, Namespace: meta.Namespace, Name: meta.Name}
}

// defaultService sets what the API server sets on a Service without a value, except what it allocates.
func defaultService(service *corev1.Service) {
	spec := &service.Spec
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		defaultServicePort(&spec.Ports[i])
	}
	defaultAffinity(spec)
	defaultTrafficPolicies(spec)
	if spec.Type != corev1.ServiceTypeExternalName {
		defaultClusterIPs(spec)
	}
	defaultLoadBalancer(service)
}

func defaultServicePort(port *corev1.ServicePort) {
	setDefault(&port.Protocol, corev1.ProtocolTCP)
	if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
		port.TargetPort = intstr.FromInt32(port.Port)
	}
}

func defaultAffinity(spec *corev1.ServiceSpec) {
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		config := spec.SessionAffinityConfig
		if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
}

func defaultTrafficPolicies(spec *corev1.ServiceSpec) {
	if externallyAccessible(spec) {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.InternalTrafficPolicy == nil && hasInternalTraffic(spec.Type) {
		spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	}
}

// externallyAccessible tells whether externalTrafficPolicy means anything.
func externallyAccessible(spec *corev1.ServiceSpec) bool {
	switch spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	case corev1.ServiceTypeClusterIP:
		return len(spec.ExternalIPs) > 0
	}
	return false
}

// hasInternalTraffic tells whether Services of the type must have an internalTrafficPolicy.
func hasInternalTraffic(serviceType corev1.ServiceType) bool {
	switch serviceType {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

// defaultClusterIPs keeps clusterIP and clusterIPs in step, and derives families and policy from them. Without
// a server that knows the cluster's families, no family is added for which there is no address.
func defaultClusterIPs(spec *corev1.ServiceSpec) {
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		spec.ClusterIP = spec.ClusterIPs[0]
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	for i := len(spec.IPFamilies); i < len(spec.ClusterIPs); i++ {
		addr, err := netip.ParseAddr(spec.ClusterIPs[i])
		if err != nil || slices.Contains(spec.IPFamilies, familyOf(addr)) {
			break // None, or a matter for validation.
		}
		spec.IPFamilies = append(spec.IPFamilies, familyOf(addr))
	}
	if spec.IPFamilyPolicy == nil {
		spec.IPFamilyPolicy = ptr.To(impliedFamilyPolicy(spec))
	}
}

func impliedFamilyPolicy(spec *corev1.ServiceSpec) corev1.IPFamilyPolicy {
	// The endpoints of a headless Service without selector are somebody else's business: of any family.
	selectorless := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
	if selectorless || len(spec.ClusterIPs) > 1 || len(spec.IPFamilies) > 1 {
		return corev1.IPFamilyPolicyRequireDualStack
	}
	return corev1.IPFamilyPolicySingleStack
}

// familyOf gives an address's family in the words of the Service API.
func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// defaultLoadBalancer sets what only Services of type LoadBalancer have, and drops a status from others: an
// API server clears it when the type changes.
func defaultLoadBalancer(service *corev1.Service) {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		service.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		return
	}
	if service.Spec.AllocateLoadBalancerNodePorts == nil {
		service.Spec.AllocateLoadBalancerNodePorts = ptr.To(true)
	}
	for i := range service.Status.LoadBalancer.Ingress {
		ingress := &service.Status.LoadBalancer.Ingress[i]
		if ingress.IP != "" && ingress.IPMode == nil {
			ingress.IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
		}
	}
}

// defaultEndpointSlice sets what the API server sets on an EndpointSlice. deprecatedTopology is a relic of
// v1beta1 that v1 ignores when written.
func defaultEndpointSlice(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Ports {
		port := &slice.Ports[i]
		if port.Name == nil {
			port.Name = ptr.To("")
		}
		if port.Protocol == nil {
			port.Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
	for i := range slice.Endpoints {
		slice.Endpoints[i].DeprecatedTopology = nil
	}
}

// defaultNode keeps podCIDR and podCIDRs in step; podCIDR wins, as it does for clients that know no other.
func defaultNode(node *corev1.Node) {
	spec := &node.Spec
	if spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR) {
		spec.PodCIDRs = []string{spec.PodCIDR}
	}
	if spec.PodCIDR == "" && len(spec.PodCIDRs) > 0 {
		spec.PodCIDR = spec.PodCIDRs[0]
	}
	if node.Status.Allocatable == nil {
		node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	}
}

// setDefault sets a value that is not given.
func setDefault[T ~string](value *T, def T) {
	if *value == "" {
		*value = def
	}
}
