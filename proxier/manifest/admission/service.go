package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The warnings of a Service. They are log messages.
const (
	warnNoClusterIP   = "Service has no clusterIP, serving its other addresses only"
	warnNoNodePort    = "Service has ports without a nodePort, serving no node ports for them"
	warnNoHealthCheck = "Service has no healthCheckNodePort, serving no health check"
	warnStatus        = "Ignoring the load balancer status of a Service that is not of type LoadBalancer"
)

// Service validates a Service and sets clusterIP and clusterIPs from each
// other. It returns warnings only if there are no errors.
func Service(service *corev1.Service) (warnings []string, errs field.ErrorList) {
	spec := &service.Spec
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		spec.ClusterIP = spec.ClusterIPs[0]
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	errs = admitMeta(&service.ObjectMeta, namespaceScope, metaapi.NameIsDNSLabel)
	errs = append(errs, validateServiceType(spec, field.NewPath("spec"))...)
	if !isHeadless(spec) && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, validateServed(service, field.NewPath("spec"))...)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return serviceWarnings(service), nil
}

func serviceWarnings(service *corev1.Service) []string {
	var warnings []string
	spec := &service.Spec
	if spec.Type != corev1.ServiceTypeExternalName && spec.ClusterIP == "" {
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

func validateServiceType(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := validateEnum(path.Child("type"), spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	switch spec.Type {
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

// validateServed checks the fields of a Service that is served.
func validateServed(service *corev1.Service, path *field.Path) field.ErrorList {
	spec := &service.Spec
	return slices.Concat(
		validateServicePorts(spec, path.Child("ports")),
		validateAffinity(spec, path),
		validateServiceAddresses(service, path),
		validateSourceRanges(spec, path.Child("loadBalancerSourceRanges")),
		validateTrafficPolicies(spec, path),
	)
}

// maxAffinitySeconds is the maximum of
// sessionAffinityConfig.clientIP.timeoutSeconds: one day.
const maxAffinitySeconds = 86400

func validateAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := validateEnum(path.Child("sessionAffinity"), spec.SessionAffinity,
		corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	config := spec.SessionAffinityConfig
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP || config == nil || config.ClientIP == nil ||
		config.ClientIP.TimeoutSeconds == nil {
		return errs
	}
	if timeout := *config.ClientIP.TimeoutSeconds; timeout < 1 || timeout > maxAffinitySeconds {
		path := path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds")
		// The message is as from the API server, although 86400 is valid.
		errs = append(errs, field.Invalid(path, timeout, "must be greater than 0 and less than 86400"))
	}
	return errs
}

// validateServiceAddresses checks the ClusterIPs, their families, external IPs
// and load balancer IPs.
func validateServiceAddresses(service *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	spec, ips := &service.Spec, path.Child("clusterIPs")
	if len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] != spec.ClusterIP {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	for i, ip := range spec.ClusterIPs {
		errs = append(errs, validateIP(ips.Index(i), ip)...)
	}
	for i, family := range spec.IPFamilies {
		errs = append(errs,
			validateEnum(path.Child("ipFamilies").Index(i), family, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
	}
	for i, ip := range spec.ExternalIPs {
		errs = append(errs, validateReachable(path.Child("externalIPs").Index(i), ip)...)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		path := field.NewPath("status", "loadBalancer", "ingress")
		errs = append(errs, validateIngress(service.Status.LoadBalancer.Ingress, path)...)
	}
	return errs
}

// validateIngress checks the addresses of a load balancer, as the API server
// does when a controller sets them.
func validateIngress(ingress []corev1.LoadBalancerIngress, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, point := range ingress {
		if path := path.Index(i); point.IP != "" {
			errs = append(errs, validateIP(path.Child("ip"), point.IP)...)
			errs = append(errs, validateOptionalEnum(path.Child("ipMode"), point.IPMode,
				corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
		}
	}
	return errs
}

// validateSourceRanges refuses source ranges of Services of other types, which
// would not restrict their clients.
func validateSourceRanges(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := validateCIDRs(path, spec.LoadBalancerSourceRanges)
	if spec.Type != corev1.ServiceTypeLoadBalancer && len(spec.LoadBalancerSourceRanges) > 0 {
		errs = append(errs, field.Forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
	}
	return errs
}

func validateTrafficPolicies(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := validateEnum(path.Child("externalTrafficPolicy"), spec.ExternalTrafficPolicy,
		corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	errs = append(errs, validateOptionalEnum(path.Child("internalTrafficPolicy"), spec.InternalTrafficPolicy,
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	if spec.HealthCheckNodePort == 0 { // the API server would allocate a port
		return errs
	}
	path = path.Child("healthCheckNodePort")
	if !needsHealthCheck(spec) {
		return append(errs, field.Invalid(path, spec.HealthCheckNodePort,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	return append(errs, validatePort(path, spec.HealthCheckNodePort)...)
}

// needsHealthCheck reports whether load balancers query the Service's health
// check on each node.
func needsHealthCheck(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}
