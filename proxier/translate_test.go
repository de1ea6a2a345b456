package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

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
	if problems != nil || s.ExternalPolicy != PolicyLocal || s.InternalPolicy != PolicyCluster || s.AffinityTimeout != 3*time.Hour ||
		s.Ports[0] != (ServicePort{"http", TCP, 80, 30080}) {
		t.Errorf("got %+v, %v", s, problems)
	}
	s, _ = serviceOf(apiService(func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30080 }))
	if s.Ports[0].NodePort != 0 {
		t.Errorf("a ClusterIP Service has NodePort %d", s.Ports[0].NodePort)
	}
}

func TestEndpointsOf(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "svc-1", Labels: map[string]string{discoveryv1.LabelServiceName: "svc"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To(int32(8080))}, {Name: ptr.To("all")}, {Name: ptr.To("bad"), Port: ptr.To(int32(0))}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Terminating: ptr.To(true)}},
			{Addresses: []string{"10.0.0.2"}}, // once more, and ready
			{Addresses: []string{"fd00::1"}},
			{Addresses: []string{"10.0.0.1"}, NodeName: ptr.To("n"),
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)},
				Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "n"}}}},
		},
	}
	name, endpoints, problems := endpointsOf(slice)
	var got []string
	for _, e := range endpoints {
		got = append(got, fmt.Sprintf("%s node=%q ready=%v serving=%v terminating=%v hints=%v ports=%v", e.Addr, e.Node, e.Ready, e.Serving, e.Terminating, e.Hints, e.Ports))
	}
	want := []string{
		`10.0.0.1 node="n" ready=false serving=true terminating=true hints=&{[a] [n]} ports=[{ tcp 8080} {all tcp 0}]`,
		`10.0.0.2 node="" ready=true serving=true terminating=false hints=<nil> ports=[{ tcp 8080} {all tcp 0}]`,
	}
	if name != (ServiceName{"ns", "svc"}) || !slices.Equal(got, want) {
		t.Errorf("%s\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(problems) != 2 || problems[0].Error() != "ports[2]: port 0 is out of range" ||
		problems[1].Error() != `endpoints[2].addresses[0]: "fd00::1" is not the IPv4 address of an endpoint` {
		t.Errorf("problems %v", problems)
	}
	slice.AddressType = discoveryv1.AddressTypeFQDN
	if name, endpoints, _ := endpointsOf(slice); name != (ServiceName{}) || endpoints != nil {
		t.Errorf("FQDN: %v %v", name, endpoints)
	}
}

// The labels on an EndpointSlice that decide whether it is used.
func TestEndpointSliceLabels(t *testing.T) {
	for _, tt := range []struct {
		name   string
		labels map[string]string
		used   bool
	}{
		{"a Service", map[string]string{discoveryv1.LabelServiceName: "svc"}, true},
		{"no Service", nil, false},
		{"headless", map[string]string{discoveryv1.LabelServiceName: "svc", corev1.IsHeadlessService: ""}, false},
		{"another proxy", map[string]string{discoveryv1.LabelServiceName: "svc", LabelServiceProxyName: "x"}, true},
	} {
		name, endpoints, problems := endpointsOf(&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "svc-1", Labels: tt.labels},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		})
		if used := name == (ServiceName{"ns", "svc"}) && len(endpoints) == 1; used != tt.used || problems != nil {
			t.Errorf("%s: got %v, %d endpoints, problems %v", tt.name, name, len(endpoints), problems)
		}
	}
}

// The defaults of the API (k8s.io/api/discovery/v1.EndpointConditions): ready and
// serving that are nil mean true, terminating that is nil means false.
func TestEndpointConditions(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	for _, tt := range []struct {
		conditions                  discoveryv1.EndpointConditions
		ready, serving, terminating bool
	}{
		{discoveryv1.EndpointConditions{}, true, true, false},
		{discoveryv1.EndpointConditions{Ready: no}, false, true, false},
		{discoveryv1.EndpointConditions{Ready: no, Terminating: yes}, false, true, true},
		{discoveryv1.EndpointConditions{Ready: no, Serving: no, Terminating: yes}, false, false, true},
		{discoveryv1.EndpointConditions{Ready: no, Serving: yes, Terminating: no}, false, true, false},
		{discoveryv1.EndpointConditions{Serving: no}, true, false, false},
		{discoveryv1.EndpointConditions{Ready: yes, Serving: yes, Terminating: yes}, true, true, true},
	} {
		e := endpointOf(&discoveryv1.Endpoint{Conditions: tt.conditions}, EndpointKey{}, nil)
		if e.Ready != tt.ready || e.Serving != tt.serving || e.Terminating != tt.terminating {
			t.Errorf("%s: ready %v, serving %v, terminating %v",
				tt.conditions.String(), e.Ready, e.Serving, e.Terminating)
		}
	}
}

// Only the first address of an endpoint is used; the API gives the others no
// meaning. They are not reported either.
func TestFirstAddressOfAnEndpoint(t *testing.T) {
	labels := map[string]string{discoveryv1.LabelServiceName: "svc"}
	_, endpoints, problems := endpointsOf(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "svc-1", Labels: labels},
		AddressType: discoveryv1.AddressTypeIPv6,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"fd00::2", "fd00::1", "not an address"}},
			{Addresses: []string{"10.0.0.1", "fd00::4"}},
			{},
			{Addresses: []string{"fd00::3"}},
		},
	})
	var got []string
	for _, e := range endpoints {
		got = append(got, e.Addr.String())
	}
	if !slices.Equal(got, []string{"fd00::2", "fd00::3"}) {
		t.Errorf("endpoints %q", got)
	}
	want := `endpoints[1].addresses[0]: "10.0.0.1" is not the IPv6 address of an endpoint`
	if len(problems) != 1 || problems[0].Error() != want {
		t.Errorf("problems %v", problems)
	}
}

// told records what a sink is told.
type told struct{ calls []string }

func (s *told) say(format string, args ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}
func (s *told) Setup() error                { return nil }
func (s *told) Sync() error                 { return nil }
func (s *told) Reset()                      {}
func (s *told) SetNode(n *Node)             { s.say("node %s zone %q", n.Name, n.Zone) }
func (s *told) SetService(svc *Service)     { s.say("set %s", svc.Name) }
func (s *told) DeleteService(n ServiceName) { s.say("delete %s", n) }
func (s *told) SetEndpoints(n ServiceName, source string, endpoints []*Endpoint) {
	text := fmt.Sprintf("set %s %s", n, source)
	for _, e := range endpoints {
		text += " " + e.Addr.String()
	}
	s.calls = append(s.calls, text)
}
func (s *told) SetEndpoint(n ServiceName, e *Endpoint) { s.say("set %s %s %s", n, e.Source, e.Addr) }
func (s *told) DeleteEndpoint(n ServiceName, key EndpointKey) {
	s.say("delete %s %s %s", n, key.Source, key.Addr)
}

// The front end tells the difference between what slices said and what they say, and nothing that stays as it was.
func TestTrackerSlices(t *testing.T) {
	slice := func(name, service string, ips ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: ptr.To(int32(80))}},
		}
		for _, ip := range ips {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
		}
		return s
	}
	tr := newTracker(new(Config), newMetrics())
	step := func(name string, want ...string) {
		t.Helper()
		var s told
		tr.handOver(&s, nil)
		slices.Sort(s.calls)
		if !slices.Equal(s.calls, want) {
			t.Errorf("%s: told %q, want %q", name, s.calls, want)
		}
	}
	tr.setSlice(TranslateEndpointSlice(slice("a", "svc", "10.0.0.1", "10.0.0.2")))
	step("first", "set ns/svc a 10.0.0.1 10.0.0.2")
	again := TranslateEndpointSlice(slice("a", "svc", "10.0.0.1", "10.0.0.2"))
	tr.setSlice(again)
	if tr.replaceSlice(again.Name, TranslateEndpointSlice(slice("a", "svc", "10.0.0.1", "10.0.0.2")).sliceState) {
		t.Error("an equal one counts as a change")
	}
	tr.setSlice(again)
	step("an equal one, of which the newest is kept", "set ns/svc a 10.0.0.1 10.0.0.2")
	if &tr.slices[again.Name].endpoints[0] != &again.endpoints[0] {
		t.Error("the endpoints of an older version are kept")
	}
	tr.setSlice(again)
	step("the same again")
	tr.setSlice(TranslateEndpointSlice(slice("a", "svc", "10.0.0.2", "10.0.0.3")))
	step("one replaced", "set ns/svc a 10.0.0.2 10.0.0.3")
	tr.setSlice(TranslateEndpointSlice(slice("a", "svc", "10.0.0.2")))
	tr.setSlice(TranslateEndpointSlice(slice("b", "svc", "10.0.0.3")))
	step("one moves", "set ns/svc a 10.0.0.2", "set ns/svc b 10.0.0.3")
	tr.setSlice(TranslateEndpointSlice(slice("b", "svc", "10.0.0.4")))
	tr.setSlice(TranslateEndpointSlice(slice("b", "svc", "10.0.0.3")))
	step("there and back", "set ns/svc b 10.0.0.3")
	tr.setSlice(TranslateEndpointSlice(slice("b", "other", "10.0.0.3")))
	step("a slice goes over to another service", "set ns/other b 10.0.0.3", "set ns/svc b")
	tr.deleteSlice(TranslateEndpointSlice(slice("a", "svc")).Name)
	tr.deleteSlice(TranslateEndpointSlice(slice("b", "other")).Name)
	step("gone", "set ns/other b", "set ns/svc a")
	tr.deleteSlice(TranslateEndpointSlice(slice("a", "svc")).Name)
	step("gone twice")
}

// With IgnoreExternalIPs, the tracker drops external IPs. It does not modify the
// Service that the source holds.
func TestTrackerIgnoresExternalIPs(t *testing.T) {
	svc := TranslateService(apiService(func(svc *corev1.Service) { svc.Spec.ExternalIPs = []string{"192.0.2.1"} }))
	for _, ignore := range []bool{false, true} {
		tr := newTracker(&Config{IgnoreExternalIPs: ignore}, newMetrics())
		tr.setService(svc)
		got := tr.services[svc.Name]
		if len(got.ExternalIPs) == 0 != ignore || len(got.ClusterIPs) != 1 {
			t.Errorf("IgnoreExternalIPs %v: ClusterIPs %v, external IPs %v", ignore, got.ClusterIPs, got.ExternalIPs)
		}
		if len(svc.service.ExternalIPs) != 1 {
			t.Errorf("IgnoreExternalIPs %v: the source's external IPs are %v now", ignore, svc.service.ExternalIPs)
		}
	}
}

// What makes no sense is told once, counted while it lasts, and told again when it is something else.
func TestTrackerReports(t *testing.T) {
	var recorded events
	m := newMetrics()
	tr := newTracker(&Config{Events: &recorded}, m)
	step := func(what string, events, invalid int, externalIPs ...string) {
		t.Helper()
		tr.setService(TranslateService(apiService(func(svc *corev1.Service) { svc.Spec.ExternalIPs = externalIPs })))
		if len(recorded) != events || m.invalidObjects.Load() != int64(invalid) {
			t.Errorf("%s: %d events, %d objects; want %d, %d", what, len(recorded), m.invalidObjects.Load(), events, invalid)
		}
	}
	step("sound", 0, 0, "192.0.2.1")
	step("invalid", 1, 1, "192.0.2.256")
	step("the same", 1, 1, "192.0.2.256")
	step("something else", 2, 1, "x")
	step("sound again", 2, 0, "192.0.2.1")
}
