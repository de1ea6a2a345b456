package random

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
)

// namespace is the namespace of all Services.
const Namespace = metav1.NamespaceDefault

// kind is a kind of Service.
type kind int

const (
	clusterIPKind kind = iota
	nodePortKind
	loadBalancerKind
	headlessKind
	externalNameKind
	foreignKind  // of another proxy
	labelledKind // with the label of headless Services, and a ClusterIP
)

// App is a Service with its EndpointSlices.
type App struct {
	// Slot is its number, from which its name and addresses follow.
	Slot int
	// Slices are its EndpointSlices.
	Slices []*discoveryv1.EndpointSlice
	// Live is the Service in the API, after the requests of API.Changes.
	Live *corev1.Service

	rival    bool // claims a frontend of another app
	kind     kind
	families []int                // 0 is IPv4
	ports    []corev1.ServicePort // see servicePorts

	externalIPs      []string
	ingress          []corev1.LoadBalancerIngress
	withoutNodePorts bool
	sourceRanges     []string

	externalLocal, internalLocal bool

	affinity int32 // timeout in seconds; 0 is none
}

// Name returns the name of the Service.
func (a *App) Name() string { return fmt.Sprintf("app-%d", a.Slot) }

func (a *App) clone() *App {
	other := *a
	other.Slices = nil
	for _, s := range a.Slices {
		other.Slices = append(other.Slices, s.DeepCopy())
	}
	return &other
}

// NewService returns a dual-stack Service with these ClusterIPs, IPv4 first.
func NewService(name string, clusterIPs []string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace}}
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	s.Spec.ClusterIP, s.Spec.ClusterIPs = clusterIPs[0], clusterIPs
	return s
}

func ingress(addr netip.Addr, mode *corev1.LoadBalancerIPMode) corev1.LoadBalancerIngress {
	if mode == nil {
		mode = ptr.To(corev1.LoadBalancerIPModeVIP) // the default
	}
	return corev1.LoadBalancerIngress{IP: addr.String(), IPMode: mode}
}

// service returns the Service.
func (a *App) service() *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: a.Name(), Namespace: Namespace}}
	s.Spec.SessionAffinity = corev1.ServiceAffinityNone
	if a.kind == externalNameKind {
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
		s.Spec.Ports = a.servicePorts(false)
		return s
	}
	a.setFamilies(&s.Spec)
	s.Spec.Type = corev1.ServiceTypeClusterIP
	s.Spec.InternalTrafficPolicy = ptr.To(policy[corev1.ServiceInternalTrafficPolicy](a.internalLocal))
	if a.affinity > 0 {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(a.affinity)},
		}
	}
	s.Labels = map[kind]map[string]string{
		foreignKind:  {"service.kubernetes.io/service-proxy-name": "other"},
		labelledKind: {corev1.IsHeadlessService: ""},
	}[a.kind]
	a.expose(s)
	return s
}

// policy returns a traffic policy.
func policy[T ~string](local bool) T {
	if local {
		return "Local"
	}
	return "Cluster"
}

func (a *App) setFamilies(spec *corev1.ServiceSpec) {
	names := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if len(a.families) == 2 {
		spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	for _, f := range a.families {
		spec.IPFamilies = append(spec.IPFamilies, names[f])
		spec.ClusterIPs = append(spec.ClusterIPs, a.clusterIP(f))
	}
	if a.kind == headlessKind {
		spec.ClusterIPs = []string{corev1.ClusterIPNone}
	}
	spec.ClusterIP = spec.ClusterIPs[0]
}

func (a *App) clusterIP(f int) string { return lab.AddrIn(a.ServiceRanges()[f], 16+a.Slot).String() }

// ServiceRanges returns the ranges of the ServiceCIDR that the app uses.
func (a *App) ServiceRanges() []netip.Prefix {
	if a.Slot%4 == 3 {
		return SecondServiceRanges()
	}
	return lab.ServiceRanges()
}

// SecondServiceRanges returns the ranges of another ServiceCIDR.
func SecondServiceRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.97.3.0/24"), netip.MustParsePrefix("fd00:97::/112")}
}

// expose sets the fields of frontends other than ClusterIPs.
func (a *App) expose(s *corev1.Service) {
	s.Spec.ExternalIPs = a.externalIPs
	reachable := len(a.externalIPs) > 0
	switch a.kind {
	case headlessKind:
		s.Spec.ExternalIPs, reachable = nil, false
	case nodePortKind, foreignKind:
		s.Spec.Type, reachable = corev1.ServiceTypeNodePort, true
	case loadBalancerKind, labelledKind:
		s.Spec.Type, reachable = corev1.ServiceTypeLoadBalancer, true
		s.Spec.AllocateLoadBalancerNodePorts = ptr.To(!a.withoutNodePorts)
		s.Spec.LoadBalancerSourceRanges = a.sourceRanges
		s.Status.LoadBalancer.Ingress = a.ingress
		if a.externalLocal {
			s.Spec.HealthCheckNodePort = int32(31500 + a.Slot)
		}
	}
	if reachable {
		s.Spec.ExternalTrafficPolicy = policy[corev1.ServiceExternalTrafficPolicy](a.externalLocal)
	}
	nodePorts := s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeLoadBalancer && !a.withoutNodePorts
	s.Spec.Ports = a.servicePorts(nodePorts)
}

// servicePorts returns the ports with their target ports, and with NodePorts if
// the Service has them.
func (a *App) servicePorts(withNodePorts bool) []corev1.ServicePort {
	all := slices.Clone(a.ports)
	for i := range all {
		all[i].TargetPort = intstr.FromInt32(all[i].Port)
		if !withNodePorts {
			all[i].NodePort = 0
		}
	}
	return all
}

// Ignored reports whether proxies must ignore the Service.
func (a *App) Ignored() bool {
	return a.kind == headlessKind || a.kind == externalNameKind || a.kind == foreignKind
}

// Endpoints returns how many addresses the slices have, without duplicates.
func (a *App) Endpoints() int {
	var addrs []string
	for _, s := range a.Slices {
		for _, e := range s.Endpoints {
			addrs = append(addrs, e.Addresses[0])
		}
	}
	slices.Sort(addrs)
	return len(slices.Compact(addrs))
}

// Ports of the servers of endpoints.
const (
	FirstTarget  = 8080
	SecondTarget = 8081
)

// SecondAddrs returns more addresses of node1. Services have them as external
// IPs.
func SecondAddrs() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("172.30.0.21"), netip.MustParseAddr("fd00:30::21")}
}

// AddPods adds the pods a1, a2, b1 and b2 to a lab, and servers to them and to
// the nodes. It returns the pods, and the addresses of all these endpoints, by
// name.
func AddPods(l *lab.Lab) (pods map[string]*lab.Pod, addrs map[string][2]netip.Addr, err error) {
	if pods, err = l.AddPods([]uint16{FirstTarget, SecondTarget}, "a1", "a2", "b1", "b2"); err != nil {
		return nil, nil, err
	}
	addrs = map[string][2]netip.Addr{}
	for name, pod := range pods {
		addrs[name] = [2]netip.Addr(pod.Addrs())
	}
	for _, node := range l.Nodes() {
		addrs[node.Name] = [2]netip.Addr(node.Addrs())
		err = errors.Join(err, node.Serve(FirstTarget), node.Serve(SecondTarget))
	}
	return pods, addrs, err
}
