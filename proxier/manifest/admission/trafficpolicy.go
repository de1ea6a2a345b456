package admission

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func defaultTrafficPolicies(spec *corev1.ServiceSpec) {
	if externallyAccessible(spec) {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.InternalTrafficPolicy == nil && hasInternalTraffic(spec.Type) {
		spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	}
}

func validateTrafficPolicies(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := validateExternalTrafficPolicy(spec, path.Child("externalTrafficPolicy"))
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

func validateExternalTrafficPolicy(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	policy := spec.ExternalTrafficPolicy
	switch {
	case externallyAccessible(spec):
		return validateEnum(path, policy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	case policy != "":
		return field.ErrorList{field.Invalid(path, policy, "may only be set for externally-accessible services")}
	}
	return nil
}

// validateHealthCheckNodePort accepts 0, for which the API server would
// allocate a port.
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

// externallyAccessible reports whether the Service has an
// externalTrafficPolicy.
func externallyAccessible(spec *corev1.ServiceSpec) bool {
	switch spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	case corev1.ServiceTypeClusterIP:
		return len(spec.ExternalIPs) > 0
	}
	return false
}

// hasInternalTraffic reports whether Services of the type have an
// internalTrafficPolicy.
func hasInternalTraffic(serviceType corev1.ServiceType) bool {
	switch serviceType {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

// needsHealthCheck reports whether load balancers query the Service's health
// check on each node.
func needsHealthCheck(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}
