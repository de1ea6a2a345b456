package admission

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

const onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"

// defaultLoadBalancer sets the fields of Services of type LoadBalancer. It
// drops the load balancer status of other Services. The API server drops it
// when the type changes.
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

// validateLoadBalancer checks the fields that require type LoadBalancer.
func validateLoadBalancer(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		if spec.LoadBalancerClass == nil {
			return nil
		}
		return invalid(path.Child("loadBalancerClass"), *spec.LoadBalancerClass,
			validation.IsQualifiedName(*spec.LoadBalancerClass))
	}
	var errs field.ErrorList
	if spec.AllocateLoadBalancerNodePorts != nil {
		errs = append(errs, field.Forbidden(path.Child("allocateLoadBalancerNodePorts"), onlyLoadBalancer))
	}
	if spec.LoadBalancerClass != nil {
		errs = append(errs, field.Forbidden(path.Child("loadBalancerClass"), onlyLoadBalancer))
	}
	return errs
}

// validateSourceRanges checks loadBalancerSourceRanges. If it is empty, the
// older annotation applies. Both may have spaces around a CIDR.
func validateSourceRanges(service *corev1.Service, path *field.Path) field.ErrorList {
	path = path.Child("loadBalancerSourceRanges")
	ranges := service.Spec.LoadBalancerSourceRanges
	elementPath := path.Index
	if len(ranges) == 0 {
		annotation, found := service.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
		if !found {
			return nil
		}
		path = field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
		elementPath = func(int) *field.Path { return path }
		if annotation = strings.TrimSpace(annotation); annotation != "" {
			ranges = strings.Split(annotation, ",")
		}
	}
	var errs field.ErrorList
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(path, onlyLoadBalancer))
	}
	for i, cidr := range ranges {
		errs = append(errs, validateCIDR(elementPath(i), strings.TrimSpace(cidr))...)
	}
	return errs
}

// validateIngress checks the addresses of a load balancer, as the API server
// does when a controller sets them.
func validateIngress(ingress []corev1.LoadBalancerIngress, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range ingress {
		point, path := &ingress[i], path.Index(i)
		switch {
		case point.IP != "":
			errs = append(errs, validateIP(path.Child("ip"), point.IP)...)
			errs = append(errs, validateEnum(path.Child("ipMode"), *point.IPMode,
				corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
		case point.IPMode != nil:
			errs = append(errs, field.Forbidden(path.Child("ipMode"), "may not be specified when `ip` is not set"))
		}
		if point.Hostname == "" {
			continue
		}
		hostname := path.Child("hostname")
		errs = append(errs, invalid(hostname, point.Hostname, validation.IsDNS1123Subdomain(point.Hostname))...)
		if _, err := netip.ParseAddr(point.Hostname); err == nil {
			errs = append(errs, field.Invalid(hostname, point.Hostname, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}
