package random

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/lab"
)

// Namespace is the namespace of all Services.
const Namespace = metav1.NamespaceDefault

// App is a Service with its EndpointSlices. They follow from seeds, one for
// each aspect.
type App struct {
	// Slot is its number, from which its name and addresses follow.
	Slot int
	// Live is the Service in the API, after the requests of objects.API. It
	// stays after the Service is deleted: see InAPI.
	Live *corev1.Service

	config  *Config
	created time.Time
	seeds   [aspects]uint64
}

// The aspects of an app, each of which can change alone.
const (
	kindAspect = iota
	families
	ports
	addresses
	policies
	affinity
	sourceRanges
	annotations
	endpoints
	conditions
	aspects // is their number
)

var aspectNames = [aspects]string{
	"kind", "families", "ports", "addresses", "policies", "affinity", "source ranges", "annotations", "slices",
	"conditions",
}

// newApp returns a random app.
func (g *Generator) newApp(slot int) *App {
	a := &App{Slot: slot, config: &g.Config, created: time.Unix(int64(g.IntN(3)), 0)}
	for aspect := range a.seeds {
		a.seeds[aspect] = g.Uint64()
	}
	return a
}

// draw returns a generator for an aspect.
func (a *App) draw(aspect int) *Generator {
	return &Generator{rand.New(rand.NewPCG(a.seeds[aspect], uint64(aspect))), *a.config}
}

// Name returns the name of the Service.
func (a *App) Name() string { return fmt.Sprintf("app-%d", a.Slot) }

// The kinds of Services that are not common: without a Service or a ClusterIP,
// of another proxy, and with the label of headless Services and a ClusterIP.
const (
	absent   = "absent"
	headless = "headless"
	foreign  = "foreign"
	labelled = "labelled"
)

// kind returns the type of the Service, or a kind.
func (a *App) kind() string {
	percent := a.draw(kindAspect).IntN(100)
	for _, k := range []struct {
		kind string
		most int
	}{
		{string(corev1.ServiceTypeClusterIP), 30}, {string(corev1.ServiceTypeNodePort), 50},
		{string(corev1.ServiceTypeLoadBalancer), 88}, {headless, 90}, {string(corev1.ServiceTypeExternalName), 93},
		{foreign, 95}, {labelled, 98},
	} {
		if percent < k.most {
			return k.kind
		}
	}
	return absent
}

// Service returns the Service, nil if there is none.
func (a *App) Service() *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: a.Name(), Namespace: Namespace}}
	kind := a.kind()
	s.Spec.Type, s.Spec.SessionAffinity = corev1.ServiceType(kind), corev1.ServiceAffinityNone
	s.Spec.Ports = a.ports()
	switch kind {
	case absent:
		return nil
	case string(corev1.ServiceTypeExternalName):
		s.Spec.ExternalName = "example.com"
		a.restrictPorts(s)
		return s
	case headless:
		s.Spec.Type = corev1.ServiceTypeClusterIP
	case foreign:
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Labels = map[string]string{translate.LabelServiceProxyName: "other"}
	case labelled:
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Labels = map[string]string{corev1.IsHeadlessService: ""}
	}
	a.setFamilies(s)
	a.setAddresses(s)
	a.setPolicies(s)
	a.setAnnotations(s)
	if kind == headless {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		s.Spec.ExternalIPs, s.Spec.ExternalTrafficPolicy = nil, ""
	}
	a.restrictPorts(s)
	return s
}

// InAPI returns the Service in the API, nil if there is none.
func (a *App) InAPI() *corev1.Service {
	if a.kind() == absent {
		return nil
	}
	return a.Live
}

func (a *App) setFamilies(s *corev1.Service) {
	g := a.draw(families)
	chosen := Pick(g, [][]int{{0}, {1}, {0, 1}, {0, 1}, {1, 0}})
	if len(g.Families) == 1 {
		chosen = g.Families
	}
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if len(chosen) == 2 {
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	for _, f := range chosen {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}[f])
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, clusterIP(a.Slot, f).String())
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
}

// clusterIP returns the ClusterIP of a slot.
func clusterIP(slot, f int) netip.Addr {
	ranges := lab.ServiceRanges()
	if slot%4 == 3 {
		ranges = SecondServiceRanges()
	}
	return lab.AddrIn(ranges[f], 16+slot)
}

// ports returns 1 to 3 ports.
func (a *App) ports() (all []corev1.ServicePort) {
	g := a.draw(ports)
	for range 1 + g.IntN(3) {
		p := corev1.ServicePort{Port: Pick(g, []int32{80, 80, 443, 53}), Protocol: Pick(g, []corev1.Protocol{
			corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP,
		})}
		taken := func(q corev1.ServicePort) bool { return q.Port == p.Port && q.Protocol == p.Protocol }
		if slices.ContainsFunc(all, taken) {
			continue
		}
		n := len(all)
		p.Name, p.NodePort, p.TargetPort = fmt.Sprintf("p%d", n), int32(30000+4*a.Slot+n), intstr.FromInt32(p.Port)
		for _, q := range all {
			if q.Port == p.Port { // with another protocol
				p.NodePort = q.NodePort
			}
		}
		if g.Alone { // some are ports of external IPs, too
			p.NodePort = Pick(g, []int32{30000, 30001, 30002, 30003, 443, 53})
		}
		all = append(all, p)
	}
	if len(all) == 1 && g.Chance(40) {
		all[0].Name = ""
	}
	return all
}

// restrictPorts removes the NodePorts of a Service that has none.
func (a *App) restrictPorts(s *corev1.Service) {
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer && *s.Spec.AllocateLoadBalancerNodePorts
	for i := range s.Spec.Ports {
		if s.Spec.Type != corev1.ServiceTypeNodePort && !balanced {
			s.Spec.Ports[i].NodePort = 0
		}
	}
}

// setAddresses sets the external and LoadBalancer IPs.
func (a *App) setAddresses(s *corev1.Service) {
	g, ingress := a.draw(addresses), []corev1.LoadBalancerIngress(nil)
	add := func(percent, f, first int) {
		if g.Chance(percent) {
			ip := g.external(a.Slot, f, first)
			mode := Pick(g, []corev1.LoadBalancerIPMode{"VIP", "VIP", "VIP", "VIP", "VIP", "Proxy"})
			ingress = append(ingress, corev1.LoadBalancerIngress{IP: ip.String(), IPMode: &mode})
		}
	}
	for _, f := range g.Families {
		if g.Chance(30) {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, g.external(a.Slot, f, 1).String())
		}
		add(85, f, 60)
		add(15, f, 120)
		if g.Chance(4) { // of node1
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, SecondAddrs()[f].String())
		}
	}
	if g.Chance(2) {
		for i := range g.ManyIPs {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, lab.AddrIn(unroutedRange, a.Slot*g.ManyIPs+i).String())
		}
	}
	if g.Chance(4) && len(s.Spec.ExternalIPs) > 0 { // both kinds
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: s.Spec.ExternalIPs[0]})
	}
	if g.Chance(8) {
		ingress = append(ingress, corev1.LoadBalancerIngress{Hostname: "lb.example.com"})
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Spec.AllocateLoadBalancerNodePorts = ptr.To(!g.Chance(15))
		s.Status.LoadBalancer.Ingress, s.Spec.LoadBalancerSourceRanges = ingress, a.sourceRanges()
	}
}

// external returns an external address of a slot. In a conflict, it is an
// address of any slot, also a ClusterIP.
func (g *Generator) external(slot, f, first int) netip.Addr {
	if g.Chance(g.Conflicts) {
		slot, first = g.IntN(2*g.Apps), Pick(g, []int{0, 1, 60})
		if first == 0 {
			return clusterIP(slot, f)
		}
	}
	return lab.AddrIn(lab.ExternalRanges()[f], first+slot)
}

func (a *App) sourceRanges() (all []string) {
	g := a.draw(sourceRanges)
	for range max(0, g.IntN(6)-2) {
		all = append(all, Pick(g, []string{
			"172.30.0.100/32", "172.31.0.0/17", "172.31.128.0/17", "10.244.0.0/16", "172.30.0.11/32", "0.0.0.0/0",
			"fd00:30::100/128", "fd00:31::/65", "fd00:31:0:0:8000::/65", "fd00:244::/32", "fd00:30::11/128", "::/0",
			"172.30.0.64/26", "fd00:30::/60", "0.0.0.0/0", "::/0", "10.244.1.0/31", "fd00:244::100/127",
		}))
	}
	return all
}

// setPolicies sets traffic policies and session affinity.
func (a *App) setPolicies(s *corev1.Service) {
	g, local := a.draw(policies), map[bool]string{true: "Local", false: "Cluster"}
	s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy(local[g.Chance(30)]))
	external := corev1.ServiceExternalTrafficPolicy(local[g.Chance(45)])
	if s.Spec.Type != corev1.ServiceTypeClusterIP || len(s.Spec.ExternalIPs) > 0 {
		s.Spec.ExternalTrafficPolicy = external
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && external == corev1.ServiceExternalTrafficPolicyLocal {
		s.Spec.HealthCheckNodePort = int32(31500 + a.Slot)
	}
	if g := a.draw(affinity); g.Chance(25) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(Pick(g, []int32{600, 10800, 86400}))},
		}
	}
}

// setAnnotations sets the creation time, and what selects hashes, the sizes of
// their tables, and metrics. Some endpoints never answer; they are not to be
// ejected while proxies are compared.
func (a *App) setAnnotations(s *corev1.Service) {
	g := a.draw(annotations)
	if !g.Alone {
		s.Annotations = map[string]string{translate.AnnotationEject: "false"}
		return
	}
	s.CreationTimestamp = metav1.NewTime(a.created)
	s.Annotations = map[string]string{}
	for _, choice := range [][]string{
		{translate.AnnotationBalance, "random", "source-hash", "source-port-hash"},
		{translate.AnnotationHashTableSize, "16", "20", "37"},
		{translate.AnnotationMetrics, "true"},
	} {
		if g.Chance(50) {
			s.Annotations[choice[0]] = Pick(g, choice[1:])
		}
	}
}

// weight returns the annotations of an EndpointSlice.
func (g *Generator) weight() map[string]string {
	if !g.Alone || !g.Chance(25) {
		return nil
	}
	return map[string]string{translate.AnnotationWeight: strconv.Itoa(g.IntN(3))}
}
