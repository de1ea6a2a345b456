package packet

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/lab"
)

// service is a Service with its EndpointSlices and expectations. In YAML it is
// a Service with fewer fields, and with more:
//
//	name: web                       # instead of metadata.name
//	spec:
//	  type: LoadBalancer
//	  externalIPs: [free]
//	  loadBalancerSourceRanges: [client, 172.30.0.0/24]
//	endpoints: a1 b1:terminating    # of one EndpointSlice for each family
//	protocols: TCP UDP              # of all ports; the default
//	number: 3                       # chosen by default
//	expect: |
//	  client -> loadBalancerIP => a1 as node1
//
// As in a cluster, other programs allocate: a Service gets ClusterIPs of both
// families, NodePorts, addresses of a load balancer, and port 80 to port 8080
// of its endpoints, unless its spec has others. They follow from its number N:
// ClusterIP 10.96.0.N, external IP 192.0.2.N, LoadBalancer IPs 198.51.100.N and
// 203.0.113.N (ipMode Proxy), NodePorts from 30000+10·N, and the same places in
// the ranges of IPv6.
//
// Names stand for addresses: in externalIPs, free for the Service's own ones,
// many for 2,100 more, and the name of a node for the addresses of the node; in
// loadBalancerSourceRanges, the name of an origin for its addresses.
//
// See cluster.slice for endpoints.
type service struct {
	corev1.Service `json:",inline"`
	Name           string  `json:"name"`
	Endpoints      *string `json:"endpoints"` // nil: no EndpointSlices
	Protocols      string  `json:"protocols"`
	Number         int     `json:"number"`
	Expect         string  `json:"expect"`

	ports   []port // of all protocols
	applied bool
	avoided []string // pods that node1 ejects
}

type port struct {
	name           string
	number, target uint16
	protocols      []string
}

// loadBalancerRanges returns the ranges of LoadBalancer IPs. The client
// reaches them through node1.
func loadBalancerRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/64")}
}

// proxyRanges returns the ranges of LoadBalancer IPs with ipMode Proxy.
// Default routes lead to the client.
func proxyRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:2::/64")}
}

// serviceNumbers is the base of default numbers. Smaller ones are set
// explicitly.
const serviceNumbers = 20

// parse returns the Service of a YAML document, with what other programs
// allocate.
func (c *cluster) parse(text string) *service {
	c.t.Helper()
	s := &service{}
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		c.t.Fatalf("%v in\n%s", err, text)
	}
	if s.Name == "" {
		c.t.Fatalf("a Service without a name:\n%s", text)
	}
	if old := c.services[s.Name]; old != nil {
		s.Number = old.Number
		if s.Endpoints == nil {
			s.Endpoints = old.Endpoints
		}
	}
	if s.Number == 0 {
		c.last++
		s.Number = serviceNumbers + c.last
	}
	if s.Protocols == "" {
		s.Protocols = "TCP UDP"
	}
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	s.ObjectMeta.Name = s.Name
	s.allocatePorts()
	s.allocateAddresses()
	s.replaceNames(c)
	return s
}

// allocatePorts sets the ports of all protocols, with NodePorts.
func (s *service) allocatePorts() {
	ports := s.Spec.Ports
	if ports == nil {
		ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	}
	s.Spec.Ports = nil
	nodePorts := s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
	for i, p := range ports {
		if p.TargetPort.IntVal == 0 {
			p.TargetPort.IntVal = firstTarget
		}
		known := port{p.Name, uint16(p.Port), uint16(p.TargetPort.IntVal), strings.Fields(s.Protocols)}
		s.ports = append(s.ports, known)
		for _, protocol := range known.protocols {
			p := p
			p.Name, p.Protocol = known.name+"-"+strings.ToLower(protocol), corev1.Protocol(protocol)
			if nodePorts {
				p.NodePort = int32(s.nodePort(i))
			}
			s.Spec.Ports = append(s.Spec.Ports, p)
		}
	}
}

// nodePort returns the NodePort of a port, by its index.
func (s *service) nodePort(i int) uint16 { return uint16(30000 + 10*s.Number + i) }

// allocateAddresses sets the families, and the addresses of the Service and of
// its load balancer.
func (s *service) allocateAddresses() {
	if s.Spec.IPFamilies == nil && s.Spec.Type != corev1.ServiceTypeExternalName {
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	if s.Spec.ClusterIP == "" && s.Spec.Type != corev1.ServiceTypeExternalName {
		s.Spec.ClusterIPs = s.texts(lab.ServiceRanges())
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
		if len(s.Spec.ClusterIPs) > 1 {
			s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		}
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, ip := range s.texts(loadBalancerRanges()) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		for _, ip := range s.texts(proxyRanges()) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: ip, IPMode: new(corev1.LoadBalancerIPModeProxy)})
		}
	}
}

// replaceNames replaces names by addresses.
func (s *service) replaceNames(c *cluster) {
	var external, ranges []string
	for _, name := range s.Spec.ExternalIPs {
		switch {
		case name == "free":
			external = append(external, s.texts(lab.ExternalRanges())...)
		case name == "many":
			external = append(external, s.manyIPs()...)
		case c.origins[name].Namespace != nil:
			external = append(external, c.origin(name).source(ipv4).String(), c.origin(name).source(ipv6).String())
		default:
			external = append(external, name)
		}
	}
	for _, name := range s.Spec.LoadBalancerSourceRanges {
		if strings.Contains(name, "/") {
			ranges = append(ranges, name)
			continue
		}
		for _, f := range bothFamilies() {
			ranges = append(ranges, single(c.origin(name).source(f)).String())
		}
	}
	s.Spec.ExternalIPs, s.Spec.LoadBalancerSourceRanges = external, ranges
}

// manyIPs returns so many external IPs that the service ports have numbers.
func (s *service) manyIPs() (ips []string) {
	for i := range 2100 {
		n, high, low := byte(s.Number), byte(i>>8), byte(i)
		ips = append(ips, netip.AddrFrom4([4]byte{100, 64 + n, high, low}).String(),
			netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 64, 13: n, 14: high, 15: low}).String())
	}
	return ips
}

// has reports whether the service has the family.
func (s *service) has(f family) bool {
	return slices.Contains(s.Spec.IPFamilies, corev1.IPFamily(f.String()))
}

// address returns the service's address in a range.
func (s *service) address(ranges []netip.Prefix, f family) netip.Addr {
	return lab.AddrIn(ranges[f], s.Number)
}

// texts returns the addresses of the service's families.
func (s *service) texts(ranges []netip.Prefix) (texts []string) {
	for _, f := range bothFamilies() {
		if s.has(f) {
			texts = append(texts, s.address(ranges, f).String())
		}
	}
	return texts
}

// manifest returns the Service and its EndpointSlices in YAML.
func (c *cluster) manifest(s *service) string {
	c.t.Helper()
	objects := []any{s.Service}
	for _, slice := range c.slices(s) {
		objects = append(objects, slice)
	}
	var manifest strings.Builder
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			c.t.Fatal(err)
		}
		fmt.Fprintf(&manifest, "---\n%s", text)
	}
	return manifest.String()
}

// slices returns the EndpointSlices, two for each part of the endpoints.
func (c *cluster) slices(s *service) (all []*discoveryv1.EndpointSlice) {
	c.t.Helper()
	if s.Endpoints == nil {
		return nil
	}
	for i, text := range strings.Split(*s.Endpoints, "/") {
		for _, f := range bothFamilies() {
			all = append(all, c.slice(s, f, i, strings.Fields(text)))
		}
	}
	return all
}

// slice returns an EndpointSlice with the endpoints of words: the names of
// pods, each with attributes after colons, such as b1:terminating:zone=east.
// Slices of a Service are separated by a slash. Other words are
//
//	weight=3          the weight of all endpoints of the slice
//	port=9100         their port, instead of the ports of the Service
//	absent=30         so many endpoints at unused addresses
//	clusterIP=web     an endpoint with the ClusterIP of another Service
func (c *cluster) slice(s *service, f family, i int, words []string) *discoveryv1.EndpointSlice {
	c.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("%s-%s-%d", s.Name, strings.ToLower(f.String()), i),
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name},
		},
		AddressType: discoveryv1.AddressType(f.String()),
		Endpoints:   []discoveryv1.Endpoint{},
	}
	target := uint16(0)
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "weight":
			slice.Annotations = map[string]string{"nftproxy.io/weight": value}
		case "port":
			target = uint16(c.number(value))
		case "absent":
			for n := range c.number(value) {
				slice.Endpoints = append(slice.Endpoints, endpointAt(lab.AddrIn(lab.PodRanges()[f], 0xf000+n)))
			}
		case "clusterIP":
			slice.Endpoints = append(slice.Endpoints, endpointAt(c.service(value).address(lab.ServiceRanges(), f)))
		default:
			slice.Endpoints = append(slice.Endpoints, c.endpoint(f, word))
		}
	}
	for _, p := range s.ports {
		for _, protocol := range p.protocols {
			number := int32(p.target)
			if target != 0 {
				number = int32(target)
			}
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name:     new(p.name + "-" + strings.ToLower(protocol)),
				Protocol: new(corev1.Protocol(protocol)), Port: &number,
			})
		}
	}
	return slice
}

func endpointAt(addr netip.Addr) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{addr.String()}}
}

// number parses a number.
func (c *cluster) number(text string) int {
	c.t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// endpoint returns the endpoint of a word.
func (c *cluster) endpoint(f family, word string) discoveryv1.Endpoint {
	c.t.Helper()
	attributes := strings.Split(word, ":")
	pod := c.pods[attributes[0]]
	if pod == nil {
		c.t.Fatalf("endpoint %q: unknown pod", word)
	}
	e := endpointAt(pod.Addrs()[f])
	e.NodeName = &pod.Node.Name
	hints := &discoveryv1.EndpointHints{}
	condition := func(ready, serving, terminating bool) {
		e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
	}
	for _, attribute := range attributes[1:] {
		key, value, _ := strings.Cut(attribute, "=")
		switch key {
		case "terminating": // and still serving
			condition(false, true, true)
		case "stopped": // and not serving
			condition(false, false, true)
		case "published": // of a Service with publishNotReadyAddresses
			condition(true, false, true)
		case "unready":
			e.Conditions = discoveryv1.EndpointConditions{Ready: new(false)}
		case "nowhere":
			e.NodeName = nil
		case "zone":
			hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: value})
			e.Hints = hints
		case "node":
			hints.ForNodes = append(hints.ForNodes, discoveryv1.ForNode{Name: value})
			e.Hints = hints
		default:
			c.t.Fatalf("endpoint %q: unknown attribute %q", word, key)
		}
	}
	return e
}
