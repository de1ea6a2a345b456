package random

import (
	"errors"
	"fmt"
	"net/netip"

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
	families []int // 0 is IPv4
	// spec and ingress are drawn for any kind of Service: the kind decides
	// which fields its Service has.
	spec    corev1.ServiceSpec
	ingress []corev1.LoadBalancerIngress
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

// service returns the Service.
func (a *App) service() *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: a.Name(), Namespace: Namespace}}
	s.Labels = map[kind]map[string]string{
		foreignKind:  {"service.kubernetes.io/service-proxy-name": "other"},
		labelledKind: {corev1.IsHeadlessService: ""},
	}[a.kind]
	a.spec.DeepCopyInto(&s.Spec)
	s.Spec.Type = corev1.ServiceTypeClusterIP
	switch a.kind {
	case externalNameKind:
		s.Spec = corev1.ServiceSpec{ExternalName: "example.com", Ports: s.Spec.Ports}
		s.Spec.Type, s.Spec.SessionAffinity = corev1.ServiceTypeExternalName, corev1.ServiceAffinityNone
	case headlessKind:
		s.Spec.ExternalIPs = nil
		s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	case nodePortKind, foreignKind:
		s.Spec.Type = corev1.ServiceTypeNodePort
	case loadBalancerKind, labelledKind:
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
	}
	a.restrict(s)
	return s
}

// setFamilies sets the families and the ClusterIPs. Family 0 is IPv4.
func (a *App) setFamilies(families []int) {
	a.families, a.spec.IPFamilies, a.spec.ClusterIPs = families, nil, nil
	a.spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if len(families) == 2 {
		a.spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	for _, f := range families {
		family := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}[f]
		a.spec.IPFamilies = append(a.spec.IPFamilies, family)
		a.spec.ClusterIPs = append(a.spec.ClusterIPs, lab.AddrIn(a.ServiceRanges()[f], 16+a.Slot).String())
	}
	a.spec.ClusterIP = a.spec.ClusterIPs[0]
}

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

// restrict removes the fields of frontends that a Service of the type does not
// have.
func (a *App) restrict(s *corev1.Service) {
	nodePorts := s.Spec.Type == corev1.ServiceTypeNodePort
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		nodePorts = *s.Spec.AllocateLoadBalancerNodePorts
		s.Status.LoadBalancer.Ingress = a.ingress
		if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			s.Spec.HealthCheckNodePort = int32(31500 + a.Slot)
		}
	} else {
		s.Spec.AllocateLoadBalancerNodePorts, s.Spec.LoadBalancerSourceRanges = nil, nil
	}
	if s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) == 0 {
		s.Spec.ExternalTrafficPolicy = ""
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		p.TargetPort = intstr.FromInt32(p.Port)
		if !nodePorts {
			p.NodePort = 0
		}
	}
}

// Ignored reports whether proxies must ignore the Service.
func (a *App) Ignored() bool {
	return a.kind == headlessKind || a.kind == externalNameKind || a.kind == foreignKind
}

// Endpoints returns how many addresses the slices have, without duplicates.
func (a *App) Endpoints() int {
	addrs := map[string]bool{}
	for _, s := range a.Slices {
		for _, e := range s.Endpoints {
			addrs[e.Addresses[0]] = true
		}
	}
	return len(addrs)
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
