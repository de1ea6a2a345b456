package random

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
)

// Namespace is the namespace of all Services.
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
	absentKind   // EndpointSlices without a Service
)

// App is a Service with its EndpointSlices.
type App struct {
	// Slot is its number, from which its name and addresses follow.
	Slot int
	// Slices are its EndpointSlices.
	Slices []*discoveryv1.EndpointSlice
	// Live is the Service in the API, after the requests of objects.API.
	Live *corev1.Service

	kind        kind
	created     metav1.Time
	annotations map[string]string
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

// NewApp returns a random app.
func (g *Generator) NewApp(slot int) *App {
	a := &App{Slot: slot}
	if g.Alone {
		a.created = metav1.NewTime(time.Unix(int64(g.IntN(3)), 0))
	}
	for _, draw := range []func(*App){
		g.drawKind, g.drawFamilies, g.drawPorts, g.drawAddresses, g.drawPolicies, g.drawAffinity, g.drawSourceRanges,
		g.drawAnnotations,
	} {
		draw(a)
	}
	return a
}

// Service returns the Service, nil if there is none.
func (a *App) Service() *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: a.Name(), Namespace: Namespace, CreationTimestamp: a.created, Annotations: a.annotations,
		Labels: map[kind]map[string]string{
			foreignKind:  {"service.kubernetes.io/service-proxy-name": "other"},
			labelledKind: {corev1.IsHeadlessService: ""},
		}[a.kind],
	}}
	a.spec.DeepCopyInto(&s.Spec)
	s.Spec.Type = corev1.ServiceTypeClusterIP
	switch a.kind {
	case absentKind:
		return nil
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

// setFamilies sets the families and the ClusterIPs. Family 0 is IPv4.
func (a *App) setFamilies(families []int) {
	a.spec.IPFamilies, a.spec.ClusterIPs = nil, nil
	a.spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if len(families) == 2 {
		a.spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	for _, f := range families {
		family := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}[f]
		a.spec.IPFamilies = append(a.spec.IPFamilies, family)
		a.spec.ClusterIPs = append(a.spec.ClusterIPs, clusterIP(a.Slot, f).String())
	}
	a.spec.ClusterIP = a.spec.ClusterIPs[0]
}

// clusterIP returns the ClusterIP of a slot.
func clusterIP(slot, f int) netip.Addr {
	ranges := lab.ServiceRanges()
	if slot%4 == 3 {
		ranges = SecondServiceRanges()
	}
	return lab.AddrIn(ranges[f], 16+slot)
}

// Ignored reports whether proxies must ignore the Service.
func (a *App) Ignored() bool {
	return a.kind == headlessKind || a.kind == externalNameKind || a.kind == foreignKind || a.kind == absentKind
}
