package manifest

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Messages that several fields share, in the API server's words.
const (
	onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"
	notExternalName  = "may not be set for ExternalName services"
)

// validateService checks a Service that has its defaults.
func validateService(service *corev1.Service) field.ErrorList {
	spec, path := &service.Spec, field.NewPath("spec")
	return slices.Concat(
		validateMeta(&service.ObjectMeta, kindService, metaapi.NameIsDNSLabel),
		validateTopologyAnnotations(service.Annotations),
		validateServiceType(spec, path),
		validateServicePorts(spec, path),
		validateSelector(spec.Selector, path.Child("selector")),
		validateAffinity(spec, path),
		validateClusterIPs(spec, path),
		validateExternalIPs(spec.ExternalIPs, path.Child("externalIPs")),
		validateSourceRanges(service, path),
		validateLoadBalancer(spec, path),
		validateTrafficPolicies(spec, path),
		validateIngress(service.Status.LoadBalancer.Ingress, field.NewPath("status", "loadBalancer", "ingress")),
	)
}

// validateTopologyAnnotations refuses an old and a new annotation that contradict each other.
func validateTopologyAnnotations(annotations map[string]string) field.ErrorList {
	mode, hasMode := annotations[corev1.AnnotationTopologyMode]
	hints, hasHints := annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !hasMode || !hasHints || mode == hints {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode)
	return field.ErrorList{field.Invalid(path, mode,
		"must match annotations["+corev1.DeprecatedAnnotationTopologyAwareHints+"] when both are specified")}
}

func validateServiceType(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := validateEnum(path.Child("type"), spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	switch spec.Type {
	case corev1.ServiceTypeExternalName:
		errs = append(errs, validateExternalName(spec, path)...)
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if isHeadless(spec) {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), spec.ClusterIPs[0],
				"may not be set to 'None' for "+string(spec.Type)+" services"))
		}
	}
	return errs
}

// isHeadless tells whether the Service has no ClusterIP on purpose.
func isHeadless(spec *corev1.ServiceSpec) bool {
	return len(spec.ClusterIPs) == 1 && spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// validateExternalName checks a Service that is an alias of a DNS name and has no addresses.
func validateExternalName(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.ClusterIP != "" || len(spec.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(path.Child("clusterIPs"), notExternalName))
	}
	if len(spec.IPFamilies) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ipFamilies"), notExternalName))
	}
	if spec.IPFamilyPolicy != nil {
		errs = append(errs, field.Forbidden(path.Child("ipFamilyPolicy"), notExternalName))
	}
	// A trailing dot marks a name as fully qualified.
	name := strings.TrimSuffix(spec.ExternalName, ".")
	if name == "" {
		return append(errs, field.Required(path.Child("externalName"), ""))
	}
	return append(errs, invalid(path.Child("externalName"), name, validation.IsDNS1123Subdomain(name))...)
}

func validateAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := validateEnum(path.Child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return errs
	}
	timeout := *spec.SessionAffinityConfig.ClientIP.TimeoutSeconds
	if timeout < 1 || timeout > maxAffinitySeconds {
		errs = append(errs, field.Invalid(path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), timeout,
			"must be greater than 0 and less than 86400"))
	}
	return errs
}

// maxAffinitySeconds is the longest sessionAffinityConfig.clientIP.timeoutSeconds: a day.
const maxAffinitySeconds = 86400

func validateExternalIPs(ips []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range ips {
		ipErrs := validateIP(path.Index(i), ip)
		if len(ipErrs) == 0 {
			ipErrs = validateReachable(path.Index(i), ip)
		}
		errs = append(errs, ipErrs...)
	}
	return errs
}

func validateTrafficPolicies(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	external := path.Child("externalTrafficPolicy")
	if externallyAccessible(spec) {
		errs = append(errs, validateEnum(external, spec.ExternalTrafficPolicy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	} else if spec.ExternalTrafficPolicy != "" {
		errs = append(errs, field.Invalid(external, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	}
	if spec.InternalTrafficPolicy != nil {
		errs = append(errs, validateEnum(path.Child("internalTrafficPolicy"), *spec.InternalTrafficPolicy,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	if spec.TrafficDistribution != nil {
		errs = append(errs, validateEnum(path.Child("trafficDistribution"), *spec.TrafficDistribution,
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return append(errs, validateHealthCheckNodePort(spec, path.Child("healthCheckNodePort"))...)
}

// validateHealthCheckNodePort takes 0 where the API server would allocate a port.
func validateHealthCheckNodePort(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	switch {
	case spec.HealthCheckNodePort == 0:
		return nil
	case !needsHealthCheck(spec):
		return field.ErrorList{field.Invalid(path, spec.HealthCheckNodePort,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")}
	}
	return validatePort(path, spec.HealthCheckNodePort)
}
