package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Service is the result of parsing a Service of the API. It takes a tenth of
// the memory of the API object, and shares only strings with it.
type Service struct {
	Name cluster.ServiceName
	UID  string
	// Service is nil if the proxy must not serve the Service.
	Service *cluster.Service
	// Problems are the fields that are invalid and were ignored.
	Problems []error
}

// ParseService parses a Service of the API.
func ParseService(svc *corev1.Service) *Service {
	s := &Service{Name: cluster.ServiceName{Namespace: svc.Namespace, Name: svc.Name}, UID: string(svc.UID)}
	if proxied(svc) {
		s.Service, s.Problems = parseServiceSpec(svc)
	}
	return s
}

// LabelServiceProxyName is the label of Services that another service proxy
// serves.
const LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// proxied reports whether a Service is served: it is neither headless, nor an
// alias of a host name, nor served by another proxy. The label
// service.kubernetes.io/headless has no meaning on a Service.
func proxied(svc *corev1.Service) bool {
	_, foreign := svc.Labels[LabelServiceProxyName]
	return !foreign && svc.Spec.ClusterIP != corev1.ClusterIPNone && svc.Spec.Type != corev1.ServiceTypeExternalName
}

func parseServiceSpec(svc *corev1.Service) (s *cluster.Service, problems []error) {
	spec := &svc.Spec
	p := parser{}
	s = &cluster.Service{
		Name:           cluster.ServiceName{Namespace: svc.Namespace, Name: svc.Name},
		UID:            string(svc.UID),
		Created:        svc.CreationTimestamp.Time,
		ClusterIPs:     p.addrs("spec.clusterIPs", clusterIPsOf(spec)),
		ExternalIPs:    p.addrs("spec.externalIPs", spec.ExternalIPs),
		InternalPolicy: policyOf((*string)(spec.InternalTrafficPolicy)),
		ExternalPolicy: policyOf((*string)(&spec.ExternalTrafficPolicy)),
		Metrics:        svc.Annotations[AnnotationMetrics] == "true",
		Selector:       selectorOf(spec.Selector),
	}
	s.Families = familiesOf(s.ClusterIPs, spec.IPFamilies)
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		s.LoadBalancerIPs = p.addrs("status.loadBalancer.ingress", vips(svc.Status.LoadBalancer.Ingress))
		if len(spec.LoadBalancerSourceRanges) > 0 {
			s.SourceRanges = p.prefixes("spec.loadBalancerSourceRanges", spec.LoadBalancerSourceRanges)
		}
		if s.ExternalPolicy == cluster.PolicyLocal {
			s.HealthCheckNodePort = uint16(spec.HealthCheckNodePort)
		}
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		s.AffinityTimeout = affinityTimeoutOf(spec.SessionAffinityConfig)
	}
	s.Balance = p.balance(svc.Annotations, s.AffinityTimeout > 0)
	s.NoEject = p.noEject(svc.Annotations)
	s.HashTableSize = p.hashTableSize(svc.Annotations)
	s.Retry = p.retry(svc.Annotations)
	s.HealthCheck = p.healthCheck(svc.Annotations)
	for i, port := range spec.Ports {
		sp, err := servicePortOf(port, spec.Type)
		if err != nil {
			p.problem(fmt.Sprintf("spec.ports[%d]", i), err)
			continue
		}
		s.Ports = append(s.Ports, sp)
		if s.HealthCheck != nil && sp.Protocol != cluster.TCP {
			err := fmt.Errorf("endpoints of spec.ports[%d] are not checked: its protocol is %s", i, sp.Protocol)
			p.annotationProblem(AnnotationHealthCheck, err)
		}
	}
	return s, p.problems
}

// selectorOf returns a selector as kubectl writes it.
func selectorOf(selector map[string]string) string {
	texts := make([]string, 0, len(selector))
	for key, value := range selector {
		texts = append(texts, key+"="+value)
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

func clusterIPsOf(spec *corev1.ServiceSpec) []string {
	if len(spec.ClusterIPs) > 0 {
		return spec.ClusterIPs
	}
	if spec.ClusterIP == "" {
		return nil
	}
	return []string{spec.ClusterIP}
}

// familiesOf returns the families of a Service: the families of its ClusterIPs.
// A Service in a manifest can have no ClusterIPs, because no API server has
// allocated any. Then the families are spec.ipFamilies, or else both.
func familiesOf(clusterIPs []netip.Addr, ipFamilies []corev1.IPFamily) []nft.Family {
	var families []nft.Family
	for _, ip := range clusterIPs {
		if f := nft.FamilyOf(ip); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	if len(families) > 0 {
		return families
	}
	for _, f := range ipFamilies {
		switch f {
		case corev1.IPv4Protocol:
			families = append(families, nft.IPv4)
		case corev1.IPv6Protocol:
			families = append(families, nft.IPv6)
		}
	}
	if len(families) > 0 {
		return families
	}
	return []nft.Family{nft.IPv4, nft.IPv6}
}

// vips returns the ingress addresses of load balancers that keep the
// destination address of packets (KEP-1860).
func vips(ingress []corev1.LoadBalancerIngress) []string {
	var ips []string
	for _, in := range ingress {
		if in.IP != "" && (in.IPMode == nil || *in.IPMode == corev1.LoadBalancerIPModeVIP) {
			ips = append(ips, in.IP)
		}
	}
	return ips
}

func policyOf(policy *string) cluster.Policy {
	if policy != nil && *policy == string(corev1.ServiceExternalTrafficPolicyLocal) {
		return cluster.PolicyLocal
	}
	return cluster.PolicyCluster
}

func affinityTimeoutOf(c *corev1.SessionAffinityConfig) time.Duration {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
	}
	return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
}

func servicePortOf(port corev1.ServicePort, typ corev1.ServiceType) (cluster.ServicePort, error) {
	proto, err := protocolOf(port.Protocol)
	if err != nil {
		return cluster.ServicePort{}, err
	}
	if port.Port < 1 || port.Port > 65535 || port.NodePort < 0 || port.NodePort > 65535 {
		return cluster.ServicePort{}, fmt.Errorf("port %d with nodePort %d is out of range", port.Port, port.NodePort)
	}
	sp := cluster.ServicePort{
		Name: port.Name, Protocol: proto, Port: uint16(port.Port), TargetName: port.TargetPort.StrVal,
	}
	if typ == corev1.ServiceTypeNodePort || typ == corev1.ServiceTypeLoadBalancer {
		sp.NodePort = uint16(port.NodePort)
	}
	return sp, nil
}

func protocolOf(p corev1.Protocol) (cluster.Protocol, error) {
	switch p {
	case corev1.ProtocolTCP, "":
		return cluster.TCP, nil
	case corev1.ProtocolUDP:
		return cluster.UDP, nil
	case corev1.ProtocolSCTP:
		return cluster.SCTP, nil
	}
	return 0, fmt.Errorf("protocol %q is not supported", p)
}
