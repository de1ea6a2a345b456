package translate

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// apiService returns an API object, after change modified it.
func apiService(change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	change(svc)
	return svc
}

// serviceOf returns the Service and the problems of an API object.
func serviceOf(svc *corev1.Service) (*cluster.Service, []error) {
	s := ParseService(svc)
	return s.Service, s.Problems
}

func TestServicesOfOthers(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"headless":      func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
		"ExternalName":  func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
		"another proxy": func(s *corev1.Service) { s.Labels = map[string]string{LabelServiceProxyName: "x"} },
	} {
		if s, problems := serviceOf(apiService(change)); s != nil || problems != nil {
			t.Errorf("%s: got %+v, problems %v; want none", name, s, problems)
		}
	}
}

// The label service.kubernetes.io/headless has no meaning on a Service: one
// with a ClusterIP and the label is served.
func TestServiceWithHeadlessLabel(t *testing.T) {
	s, problems := serviceOf(apiService(func(s *corev1.Service) {
		s.Labels = map[string]string{corev1.IsHeadlessService: ""}
	}))
	if s == nil || problems != nil || !slices.Equal(s.ClusterIPs, []netip.Addr{addr("10.96.0.1")}) {
		t.Errorf("got %+v, problems %v; want ClusterIP 10.96.0.1 and no problems", s, problems)
	}
}

// Invalid values are reported and ignored.
func TestServiceWithInvalidValues(t *testing.T) {
	s, problems := serviceOf(apiService(func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.ExternalIPs = []string{"192.0.2.1", "192.0.2.256", "192.0.2.010"}
		svc.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/33", " 10.0.0.0/8 "}
		svc.Spec.Ports = append(svc.Spec.Ports,
			corev1.ServicePort{Protocol: "DCCP", Port: 1}, corev1.ServicePort{Port: 70000})
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "203.0.113.1"}, {IP: "x"}, {Hostname: "lb"},
			{IP: "203.0.113.2", IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)},
		}
	}))
	var got []string
	for _, p := range problems {
		got = append(got, p.Error())
	}
	want := []string{
		`spec.externalIPs[1]: "192.0.2.256" is not the IP address of a service`,
		`status.loadBalancer.ingress[1]: "x" is not the IP address of a service`,
		`spec.loadBalancerSourceRanges[0]: "10.0.0.0/33" is not a CIDR`,
		`spec.ports[1]: protocol "DCCP" is not supported`,
		`spec.ports[2]: port 70000 with nodePort 0 is out of range`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := []netip.Addr{addr("192.0.2.1"), addr("192.0.2.10")}; !slices.Equal(s.ExternalIPs, want) {
		t.Errorf("got external IPs %v, want %v (leading zeros are decimal)", s.ExternalIPs, want)
	}
	if want := []netip.Addr{addr("203.0.113.1")}; !slices.Equal(s.LoadBalancerIPs, want) {
		t.Errorf("got LoadBalancer IPs %v, want %v", s.LoadBalancerIPs, want)
	}
	if len(s.Ports) != 1 || len(s.SourceRanges) != 1 {
		t.Errorf("got ports %v, source ranges %v; want one of each", s.Ports, s.SourceRanges)
	}
}

// If no source range is valid, no client is allowed.
func TestServiceWithoutValidSourceRange(t *testing.T) {
	s, _ := serviceOf(apiService(func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.LoadBalancerSourceRanges = []string{"any"}
	}))
	if s.SourceRanges == nil || len(s.SourceRanges) != 0 {
		t.Errorf("got %#v, want an empty list that is not nil", s.SourceRanges)
	}
}

// A range of IPv4-mapped IPv6 addresses is a range of IPv4.
func TestMappedSourceRange(t *testing.T) {
	s, problems := serviceOf(apiService(func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.LoadBalancerSourceRanges = []string{
			"::ffff:10.0.0.0/104", "::ffff:192.0.2.1/128", "::ffff:0:0/96", "::ffff:0:0/95", "fd00::/8",
		}
	}))
	var want []netip.Prefix
	for _, cidr := range []string{"10.0.0.0/8", "192.0.2.1/32", "0.0.0.0/0", "::fffe:0:0/95", "fd00::/8"} {
		want = append(want, netip.MustParsePrefix(cidr))
	}
	if !slices.Equal(s.SourceRanges, want) || problems != nil {
		t.Errorf("got %v and problems %v, want %v", s.SourceRanges, problems, want)
	}
}

func TestServiceFields(t *testing.T) {
	s, problems := serviceOf(apiService(func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeNodePort
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		svc.Spec.Ports[0].NodePort = 30080
	}))
	if problems != nil {
		t.Errorf("got problems %v, want none", problems)
	}
	if s.ExternalPolicy != cluster.PolicyLocal || s.InternalPolicy != cluster.PolicyCluster {
		t.Errorf("got policies %v, %v; want Local, Cluster", s.ExternalPolicy, s.InternalPolicy)
	}
	if s.AffinityTimeout != 3*time.Hour {
		t.Errorf("got affinity timeout %v, want the default 3h", s.AffinityTimeout)
	}
	want := cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80, NodePort: 30080}
	if s.Ports[0] != want {
		t.Errorf("got port %+v, want %+v", s.Ports[0], want)
	}
	s, _ = serviceOf(apiService(func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30080 }))
	if s.Ports[0].NodePort != 0 {
		t.Errorf("ClusterIP Service: got NodePort %d, want 0", s.Ports[0].NodePort)
	}
}

func TestFamilies(t *testing.T) {
	for _, tt := range []struct {
		name       string
		clusterIPs []string
		families   []corev1.IPFamily
		want       []nft.Family
	}{
		{"one ClusterIP", []string{"fd00::1"}, []corev1.IPFamily{corev1.IPv4Protocol}, []nft.Family{nft.IPv6}},
		{"two ClusterIPs", []string{"10.96.0.1", "fd00::1"}, nil, []nft.Family{nft.IPv4, nft.IPv6}},
		{"ipFamilies", nil, []corev1.IPFamily{corev1.IPv6Protocol}, []nft.Family{nft.IPv6}},
		{"neither", nil, nil, []nft.Family{nft.IPv4, nft.IPv6}},
	} {
		var ips []netip.Addr
		for _, ip := range tt.clusterIPs {
			ips = append(ips, addr(ip))
		}
		if got := familiesOf(ips, tt.families); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The annotation selects a Service for --service-metrics=annotated.
func TestMetricsAnnotation(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": false} {
		s, _ := serviceOf(apiService(func(s *corev1.Service) {
			s.Annotations = map[string]string{AnnotationMetrics: value}
		}))
		if s.Metrics != want {
			t.Errorf("%q: got %v, want %v", value, s.Metrics, want)
		}
	}
}
