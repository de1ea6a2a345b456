package admission

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// The warnings of a Service. They are log messages.
const (
	warnNoAddress     = "Service has no clusterIP, nodePort or external address, serving nothing"
	warnNoNodePort    = "Service has ports without a nodePort, serving no node ports for them"
	warnNoHealthCheck = "Service has no healthCheckNodePort, serving no health check"
	warnNoIngress     = "Service has no address in status.loadBalancer.ingress, serving no LoadBalancer IP"
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
	var c checker
	c.meta(&service.ObjectMeta, namespaceScope, metaapi.NameIsDNSLabel)
	path := field.NewPath("spec")
	c.serviceType(path, spec)
	if !isHeadless(spec) && spec.Type != corev1.ServiceTypeExternalName { // the Service is served
		c.servicePorts(path.Child("ports"), spec)
		c.affinity(path, spec)
		c.serviceAddresses(path, service)
		c.sourceRanges(path.Child("loadBalancerSourceRanges"), spec)
		c.trafficPolicies(path, spec)
	}
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	return serviceWarnings(service), nil
}

func serviceWarnings(service *corev1.Service) (warnings []string) {
	spec := &service.Spec
	withoutNodePort := func(port corev1.ServicePort) bool { return port.NodePort == 0 }
	hasIP := func(ingress corev1.LoadBalancerIngress) bool { return ingress.IP != "" }
	hasNodePort := func(port corev1.ServicePort) bool { return port.NodePort > 0 }
	hasAddress := len(spec.ExternalIPs) > 0 || slices.ContainsFunc(service.Status.LoadBalancer.Ingress, hasIP)
	isServed := hasAddress || spec.ClusterIP != "" || slices.ContainsFunc(spec.Ports, hasNodePort)
	for _, warning := range []struct {
		text    string
		applies bool
	}{
		{warnNoAddress, spec.Type != corev1.ServiceTypeExternalName && !isServed},
		{warnNoNodePort, spec.Type == corev1.ServiceTypeNodePort && slices.ContainsFunc(spec.Ports, withoutNodePort)},
		{warnNoHealthCheck, needsHealthCheck(spec) && spec.HealthCheckNodePort == 0},
		{warnNoIngress, spec.Type == corev1.ServiceTypeLoadBalancer && !hasAddress},
		{warnStatus, spec.Type != corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) > 0},
	} {
		if warning.applies {
			warnings = append(warnings, warning.text)
		}
	}
	return warnings
}

func (c *checker) serviceType(path *field.Path, spec *corev1.ServiceSpec) {
	enum(c, path.Child("type"), spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if isHeadless(spec) {
			c.invalid(path.Child("clusterIPs").Index(0), spec.ClusterIPs[0],
				"may not be set to 'None' for "+string(spec.Type)+" services")
		}
	}
}

// isHeadless reports whether the clusterIP of the Service is "None".
func isHeadless(spec *corev1.ServiceSpec) bool {
	return len(spec.ClusterIPs) == 1 && spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// maxAffinitySeconds is the maximum of
// sessionAffinityConfig.clientIP.timeoutSeconds: one day.
const maxAffinitySeconds = 86400

func (c *checker) affinity(path *field.Path, spec *corev1.ServiceSpec) {
	enum(c, path.Child("sessionAffinity"), spec.SessionAffinity,
		corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	config := spec.SessionAffinityConfig
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP || config == nil || config.ClientIP == nil ||
		config.ClientIP.TimeoutSeconds == nil {
		return
	}
	if timeout := *config.ClientIP.TimeoutSeconds; timeout < 1 || timeout > maxAffinitySeconds {
		// The message is as from the API server, although 86400 is valid.
		c.invalid(path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), timeout,
			"must be greater than 0 and less than 86400")
	}
}

// serviceAddresses checks the ClusterIPs, their families, external IPs and
// load balancer IPs.
func (c *checker) serviceAddresses(path *field.Path, service *corev1.Service) {
	spec, ips := &service.Spec, path.Child("clusterIPs")
	if len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] != spec.ClusterIP {
		c.invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`")
	}
	for i, ip := range spec.ClusterIPs {
		c.ip(ips.Index(i), ip)
	}
	for i, family := range spec.IPFamilies {
		enum(c, path.Child("ipFamilies").Index(i), family, corev1.IPv4Protocol, corev1.IPv6Protocol)
	}
	for i, ip := range spec.ExternalIPs {
		c.reachable(path.Child("externalIPs").Index(i), ip)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		c.ingress(field.NewPath("status", "loadBalancer", "ingress"), service.Status.LoadBalancer.Ingress)
	}
}

// ingress checks the addresses of a load balancer, as the API server does when
// a controller sets them.
func (c *checker) ingress(path *field.Path, ingress []corev1.LoadBalancerIngress) {
	for i, point := range ingress {
		if path := path.Index(i); point.IP != "" {
			c.ip(path.Child("ip"), point.IP)
			enum(c, path.Child("ipMode"), ptr.Deref(point.IPMode, ""),
				corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)
		}
	}
}

// sourceRanges refuses source ranges of Services of other types, which would
// not restrict their clients.
func (c *checker) sourceRanges(path *field.Path, spec *corev1.ServiceSpec) {
	c.cidrs(path, spec.LoadBalancerSourceRanges)
	if spec.Type != corev1.ServiceTypeLoadBalancer && len(spec.LoadBalancerSourceRanges) > 0 {
		c.add(field.Forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
	}
}

func (c *checker) trafficPolicies(path *field.Path, spec *corev1.ServiceSpec) {
	enum(c, path.Child("externalTrafficPolicy"), spec.ExternalTrafficPolicy,
		corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	enum(c, path.Child("internalTrafficPolicy"), ptr.Deref(spec.InternalTrafficPolicy, ""),
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	path = path.Child("healthCheckNodePort")
	switch port := spec.HealthCheckNodePort; {
	case port == 0: // the API server would allocate a port
	case !needsHealthCheck(spec):
		c.invalid(path, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	default:
		c.port(path, port)
	}
}

// needsHealthCheck reports whether load balancers query the Service's health
// check on each node.
func needsHealthCheck(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// protocol checks the protocol of a port of a Service or an EndpointSlice.
func (c *checker) protocol(path *field.Path, protocol corev1.Protocol) {
	enum(c, path, protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// servicePorts checks the ports of a Service. Names, pairs of protocol and
// port, and pairs of protocol and nodePort must be unique.
func (c *checker) servicePorts(path *field.Path, spec *corev1.ServiceSpec) {
	if len(spec.Ports) == 0 {
		c.add(field.Required(path, ""))
	}
	names, ports, nodePorts := sets.New[string](), sets.New[string](), sets.New[string]()
	for i := range spec.Ports {
		port, path := &spec.Ports[i], path.Index(i)
		c.portName(path.Child("name"), port.Name, names, len(spec.Ports) > 1)
		c.port(path.Child("port"), port.Port)
		c.protocol(path.Child("protocol"), port.Protocol)
		protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
		c.unique(ports, path, fmt.Sprintf("%s/%d", protocol, port.Port))
		if port.NodePort != 0 {
			path = path.Child("nodePort")
			c.nodePort(path, port.NodePort, spec.Type)
			c.unique(nodePorts, path, fmt.Sprintf("%s/%d", protocol, port.NodePort))
		}
	}
}

// portName checks the name of a port of a Service, which is part of the names
// of chains.
func (c *checker) portName(path *field.Path, name string, seen sets.Set[string], required bool) {
	if name != "" {
		c.invalid(path, name, validation.IsDNS1123Label(name)...)
		c.unique(seen, path, name)
	} else if required {
		c.add(field.Required(path, ""))
	}
}

// nodePort checks a nodePort that is set. It accepts any port: the range
// --service-node-port-range is a flag of the API server.
func (c *checker) nodePort(path *field.Path, nodePort int32, serviceType corev1.ServiceType) {
	if serviceType == "" || serviceType == corev1.ServiceTypeClusterIP {
		c.add(field.Forbidden(path, "may not be used when `type` is 'ClusterIP'"))
		return
	}
	c.port(path, nodePort)
}
