package admission

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const notExternalName = "may not be set for ExternalName services"

// The warnings of a Service. They are log messages.
const (
	warnNoClusterIP   = "Service has no clusterIP, serving its other addresses only"
	warnNoNodePort    = "Service has ports without a nodePort, serving no node ports for them"
	warnNoHealthCheck = "Service has no healthCheckNodePort, serving no health check"
	warnStatus        = "Ignoring the load balancer status of a Service that is not of type LoadBalancer"
)

// Service sets the defaults of a Service and validates it. It returns
// warnings only if there are no errors.
func Service(service *corev1.Service) (warnings []string, errs field.ErrorList) {
	warnings = serviceWarnings(service)
	defaultService(service)
	if errs := validateService(service); len(errs) > 0 {
		return nil, errs
	}
	return warnings, nil
}

// serviceWarnings returns the warnings of a Service without its defaults.
func serviceWarnings(service *corev1.Service) []string {
	var warnings []string
	spec := &service.Spec
	if spec.Type != corev1.ServiceTypeExternalName && spec.ClusterIP == "" && len(spec.ClusterIPs) == 0 {
		warnings = append(warnings, warnNoClusterIP)
	}
	if spec.Type == corev1.ServiceTypeNodePort &&
		slices.ContainsFunc(spec.Ports, func(port corev1.ServicePort) bool { return port.NodePort == 0 }) {
		warnings = append(warnings, warnNoNodePort)
	}
	if needsHealthCheck(spec) && spec.HealthCheckNodePort == 0 {
		warnings = append(warnings, warnNoHealthCheck)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) > 0 {
		warnings = append(warnings, warnStatus)
	}
	return warnings
}

func defaultService(service *corev1.Service) {
	spec := &service.Spec
	defaultMeta(&service.ObjectMeta, namespaceScope)
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

// validateService checks a Service that has its defaults.
func validateService(service *corev1.Service) field.ErrorList {
	spec, path := &service.Spec, field.NewPath("spec")
	return slices.Concat(
		validateMeta(&service.ObjectMeta, namespaceScope, metaapi.NameIsDNSLabel),
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

// validateTopologyAnnotations checks that the old and the new annotation
// agree.
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

// isHeadless reports whether the clusterIP of the Service is "None".
func isHeadless(spec *corev1.ServiceSpec) bool {
	return len(spec.ClusterIPs) == 1 && spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// validateExternalName checks a Service of type ExternalName, which has no
// addresses.
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
