package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/net"

	"github.com/nftproxy/nftproxy/nft"
)

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

// serviceOf translates a Service of the API. It returns nil for a Service that
// is not served, and a problem for each value that is invalid and was left out.
func serviceOf(svc *corev1.Service) (s *Service, problems []error) {
	if !proxied(svc) {
		return nil, nil
	}
	spec := &svc.Spec
	p := parser{}
	s = &Service{
		Name:           ServiceName{svc.Namespace, svc.Name},
		UID:            string(svc.UID),
		Created:        svc.CreationTimestamp.Time,
		ClusterIPs:     p.addrs("spec.clusterIPs", clusterIPsOf(spec)),
		ExternalIPs:    p.addrs("spec.externalIPs", spec.ExternalIPs),
		InternalPolicy: policyOf((*string)(spec.InternalTrafficPolicy)),
		ExternalPolicy: policyOf((*string)(&spec.ExternalTrafficPolicy)),
	}
	s.Families = familiesOf(s.ClusterIPs, spec.IPFamilies)
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		s.LoadBalancerIPs = p.addrs("status.loadBalancer.ingress", vips(svc.Status.LoadBalancer.Ingress))
		if len(spec.LoadBalancerSourceRanges) > 0 {
			s.SourceRanges = p.prefixes("spec.loadBalancerSourceRanges", spec.LoadBalancerSourceRanges)
		}
		if s.ExternalPolicy == PolicyLocal {
			s.HealthCheckNodePort = uint16(spec.HealthCheckNodePort)
		}
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		s.AffinityTimeout = affinityTimeoutOf(spec.SessionAffinityConfig)
	}
	for i, port := range spec.Ports {
		sp, err := servicePortOf(port, spec.Type)
		if err != nil {
			p.problem(fmt.Sprintf("spec.ports[%d]", i), err)
			continue
		}
		s.Ports = append(s.Ports, sp)
	}
	return s, p.problems
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

// familiesOf returns the families of a Service: those of its ClusterIPs. One without any, as manifests can have it, where no API server gave it one,
// has those that it asks for, or else both.
func familiesOf(clusterIPs []netip.Addr, asked []corev1.IPFamily) []nft.Family {
	var families []nft.Family
	for _, ip := range clusterIPs {
		if f := nft.FamilyOf(ip); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	if len(families) > 0 {
		return families
	}
	for _, f := range asked {
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

// vips returns the addresses at which packets arrive unchanged (KEP-1860).
func vips(ingress []corev1.LoadBalancerIngress) []string {
	var ips []string
	for _, in := range ingress {
		if in.IP != "" && (in.IPMode == nil || *in.IPMode == corev1.LoadBalancerIPModeVIP) {
			ips = append(ips, in.IP)
		}
	}
	return ips
}

func policyOf(policy *string) Policy {
	if policy != nil && *policy == string(corev1.ServiceExternalTrafficPolicyLocal) {
		return PolicyLocal
	}
	return PolicyCluster
}

func affinityTimeoutOf(c *corev1.SessionAffinityConfig) time.Duration {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
	}
	return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
}

func servicePortOf(port corev1.ServicePort, typ corev1.ServiceType) (ServicePort, error) {
	proto, err := protocolOf(port.Protocol)
	if err != nil {
		return ServicePort{}, err
	}
	if port.Port < 1 || port.Port > 65535 || port.NodePort < 0 || port.NodePort > 65535 {
		return ServicePort{}, fmt.Errorf("port %d with nodePort %d is out of range", port.Port, port.NodePort)
	}
	sp := ServicePort{Name: port.Name, Protocol: proto, Port: uint16(port.Port)}
	if typ == corev1.ServiceTypeNodePort || typ == corev1.ServiceTypeLoadBalancer {
		sp.NodePort = uint16(port.NodePort)
	}
	return sp, nil
}

func protocolOf(p corev1.Protocol) (Protocol, error) {
	switch p {
	case corev1.ProtocolTCP, "":
		return TCP, nil
	case corev1.ProtocolUDP:
		return UDP, nil
	case corev1.ProtocolSCTP:
		return SCTP, nil
	}
	return 0, fmt.Errorf("protocol %q is not supported", p)
}

// parser reads the values of an object and collects what is wrong with them.
type parser struct{ problems []error }

func (p *parser) problem(field string, err error) {
	p.problems = append(p.problems, fmt.Errorf("%s: %w", field, err))
}

// addrs reads addresses.
func (p *parser) addrs(field string, values []string) []netip.Addr {
	var out []netip.Addr
	for i, v := range values {
		a, ok := parseAddr(v)
		if !ok || a.IsUnspecified() {
			p.problem(fmt.Sprintf("%s[%d]", field, i), fmt.Errorf("%q is not the IP address of a service", v))
			continue
		}
		out = append(out, a)
	}
	return out
}

// prefixes reads CIDRs. The result is not nil: if none makes sense, nobody is meant, rather than everybody.
func (p *parser) prefixes(field string, values []string) []netip.Prefix {
	out := []netip.Prefix{}
	for i, v := range values {
		_, n, err := net.ParseCIDRSloppy(strings.TrimSpace(v))
		if err != nil {
			p.problem(fmt.Sprintf("%s[%d]", field, i), fmt.Errorf("%q is not a CIDR", v))
			continue
		}
		a, _ := netip.AddrFromSlice(n.IP)
		bits, _ := n.Mask.Size()
		out = append(out, netip.PrefixFrom(a, bits))
	}
	return out
}
