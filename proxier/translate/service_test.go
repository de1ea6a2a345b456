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

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

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

func serviceOf(svc *corev1.Service) (*cluster.Service, []error) {
	s := ParseService(svc)
	return s.Service, s.Problems
}

func TestServicesLeftOut(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"headless":      func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
		"ExternalName":  func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
		"another proxy": func(s *corev1.Service) { s.Labels = map[string]string{LabelServiceProxyName: "x"} },
	} {
		if s, problems := serviceOf(apiService(change)); s != nil || problems != nil {
			t.Errorf("%s: got %+v, %v", name, s, problems)
		}
	}
}

// The label of headless Services is meant for their EndpointSlices: a Service
// that has a ClusterIP and carries the label is served.
func TestServiceWithHeadlessLabel(t *testing.T) {
	s, problems := serviceOf(apiService(func(s *corev1.Service) {
		s.Labels = map[string]string{corev1.IsHeadlessService: ""}
	}))
	if s == nil || problems != nil || !slices.Equal(s.ClusterIPs, []netip.Addr{addr("10.96.0.1")}) {
		t.Errorf("got %+v, %v", s, problems)
	}
}

// One bad value is reported and left out; the rest of the Service works.
func TestServiceWithInvalidValues(t *testing.T) {
	s, problems := serviceOf(apiService(func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.ExternalIPs = []string{"192.0.2.1", "192.0.2.256", "192.0.2.010"}
		svc.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/33", " 10.0.0.0/8 "}
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Protocol: "DCCP", Port: 1}, corev1.ServicePort{Port: 70000})
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "203.0.113.1"}, {IP: "x"}, {Hostname: "lb"}, {IP: "203.0.113.2", IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)},
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
		t.Errorf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := []netip.Addr{addr("192.0.2.1"), addr("192.0.2.10")}; !slices.Equal(s.ExternalIPs, want) {
		t.Errorf("external IPs %v, want %v (leading zeros are read as decimal)", s.ExternalIPs, want)
	}
	if want := []netip.Addr{addr("203.0.113.1")}; !slices.Equal(s.LoadBalancerIPs, want) {
		t.Errorf("LoadBalancer IPs %v, want %v", s.LoadBalancerIPs, want)
	}
	if len(s.Ports) != 1 || len(s.SourceRanges) != 1 {
		t.Errorf("ports %v, source ranges %v", s.Ports, s.SourceRanges)
	}
}

// Source ranges none of which makes sense let nobody in, rather than everybody.
func TestServiceWithInvalidSourceRangesOnly(t *testing.T) {
	s, _ := serviceOf(apiService(func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.LoadBalancerSourceRanges = []string{"everybody"}
	}))
	if s.SourceRanges == nil || len(s.SourceRanges) != 0 {
		t.Errorf("got %#v, want an empty list that is not nil", s.SourceRanges)
	}
}

func TestServiceFields(t *testing.T) {
	s, problems := serviceOf(apiService(func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeNodePort
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		svc.Spec.Ports[0].NodePort = 30080
	}))
	if problems != nil || s.ExternalPolicy != cluster.PolicyLocal || s.InternalPolicy != cluster.PolicyCluster || s.AffinityTimeout != 3*time.Hour ||
		s.Ports[0] != (cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80, NodePort: 30080}) {
		t.Errorf("got %+v, %v", s, problems)
	}
	s, _ = serviceOf(apiService(func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30080 }))
	if s.Ports[0].NodePort != 0 {
		t.Errorf("a ClusterIP Service has NodePort %d", s.Ports[0].NodePort)
	}
}
