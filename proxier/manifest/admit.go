package manifest

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What the log says of an object that is valid, but not all of which can work.
const (
	noticeSkipped       = "Skipped an object of a kind that is not read"
	noticeNoService     = "Skipped an EndpointSlice without the label " + discoveryv1.LabelServiceName
	noticeNoClusterIP   = "Service has no ClusterIP, none was given"
	noticeNoNodePort    = "Service has ports without a NodePort, none was given"
	noticeNoHealthCheck = "Service has no health check NodePort, none was given"
	noticeNoStatus      = "Dropped the load balancer status of a Service that is not of type LoadBalancer"
)

// admit gives a decoded object its defaults, as the API server would, and keeps it if it is valid.
func (p *parsed) admit(value runtime.Object, item int) {
	var (
		key     objectKey
		errs    field.ErrorList
		notices []string
	)
	switch value := value.(type) {
	case *corev1.Service:
		key = defaultMeta(kindService, &value.ObjectMeta)
		notices = serviceNotices(value)
		defaultService(value)
		errs = validateService(value)
	case *discoveryv1.EndpointSlice:
		key = defaultMeta(kindEndpointSlice, &value.ObjectMeta)
		defaultEndpointSlice(value)
		errs = validateEndpointSlice(value)
		if errs == nil && value.Labels[discoveryv1.LabelServiceName] == "" {
			p.notice(item, key.String(), noticeNoService)
			return
		}
	case *corev1.Node:
		key = defaultMeta(kindNode, &value.ObjectMeta)
		defaultNode(value)
		errs = validateNode(value)
	case *networkingv1.ServiceCIDR:
		key = defaultMeta(kindServiceCIDR, &value.ObjectMeta)
		errs = validateServiceCIDR(value)
	}
	for _, err := range errs {
		p.problem(item, key.String(), err)
	}
	if len(errs) > 0 {
		return
	}
	p.objects = append(p.objects, object{place: place{item: item}, key: key, value: value})
	for _, text := range notices {
		p.notice(item, key.String(), text)
	}
}

// serviceNotices tells what a Service, still without its defaults, will lack for want of an API server.
func serviceNotices(service *corev1.Service) []string {
	var notices []string
	spec := &service.Spec
	if spec.Type != corev1.ServiceTypeExternalName && spec.ClusterIP == "" && len(spec.ClusterIPs) == 0 {
		notices = append(notices, noticeNoClusterIP)
	}
	if spec.Type == corev1.ServiceTypeNodePort {
		for _, port := range spec.Ports {
			if port.NodePort == 0 {
				notices = append(notices, noticeNoNodePort)
				break
			}
		}
	}
	if needsHealthCheck(spec) && spec.HealthCheckNodePort == 0 {
		notices = append(notices, noticeNoHealthCheck)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) > 0 {
		notices = append(notices, noticeNoStatus)
	}
	return notices
}

// needsHealthCheck tells whether load balancers ask the node for local endpoints of the Service.
func needsHealthCheck(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// namespaceOr returns the namespace, or the one that objects without any go to.
func namespaceOr(namespace string) string {
	if namespace == "" {
		return metav1.NamespaceDefault
	}
	return namespace
}
