package manifest

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateLoadBalancer checks the fields that only Services of type LoadBalancer can have.
func validateLoadBalancer(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		if spec.LoadBalancerClass == nil {
			return nil
		}
		return invalid(path.Child("loadBalancerClass"), *spec.LoadBalancerClass, validation.IsQualifiedName(*spec.LoadBalancerClass))
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

// validateSourceRanges checks the field, or the annotation that came before it. Spaces around a CIDR have
// always been fine.
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

// validateIngress checks the addresses that a load balancer has, as the API server does when a controller
// sets them.
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
