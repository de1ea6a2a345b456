package proxier

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
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

// recordingSink records the calls of a Sink.
type recordingSink struct{ calls []string }

func (s *recordingSink) add(format string, args ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}
func (s *recordingSink) Setup() error                        { return nil }
func (s *recordingSink) Sync() error                         { return nil }
func (s *recordingSink) Reset()                              {}
func (s *recordingSink) SetNode(n *cluster.Node)             { s.add("node %s zone %q", n.Name, n.Zone) }
func (s *recordingSink) SetService(svc *cluster.Service)     { s.add("set %s", svc.Name) }
func (s *recordingSink) DeleteService(n cluster.ServiceName) { s.add("delete %s", n) }
func (s *recordingSink) SetEndpoints(n cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	text := fmt.Sprintf("set %s %s", n, source)
	for _, e := range endpoints {
		text += " " + e.Addr.String()
	}
	s.calls = append(s.calls, text)
}
func (s *recordingSink) SetEndpoint(n cluster.ServiceName, e *cluster.Endpoint) {
	s.add("set %s %s %s", n, e.Source, e.Addr)
}
func (s *recordingSink) DeleteEndpoint(n cluster.ServiceName, key cluster.EndpointKey) {
	s.add("delete %s %s %s", n, key.Source, key.Addr)
}

// handOver passes the difference between the old and the new EndpointSlices.
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
	tr := newTracker(new(Config), eventLog{}, newMetrics())
	step := func(name string, want ...string) {
		t.Helper()
		var s recordingSink
		tr.handOver(&s, nil)
		slices.Sort(s.calls)
		if !slices.Equal(s.calls, want) {
			t.Errorf("%s: told %q, want %q", name, s.calls, want)
		}
	}
	tr.setSlice(translate.ParseEndpointSlice(slice("a", "svc", "10.0.0.1", "10.0.0.2")))
	step("first", "set ns/svc a 10.0.0.1 10.0.0.2")
	again := translate.ParseEndpointSlice(slice("a", "svc", "10.0.0.1", "10.0.0.2"))
	tr.setSlice(again)
	equal := translate.ParseEndpointSlice(slice("a", "svc", "10.0.0.1", "10.0.0.2"))
	if tr.replaceSlice(again.Name, sliceState{again.Service, equal.Endpoints}) {
		t.Error("an equal one counts as a change")
	}
	tr.setSlice(again)
	step("an equal one, of which the newest is kept", "set ns/svc a 10.0.0.1 10.0.0.2")
	if &tr.slices[again.Name].endpoints[0] != &again.Endpoints[0] {
		t.Error("the endpoints of an older version are kept")
	}
	tr.setSlice(again)
	step("the same again")
	tr.setSlice(translate.ParseEndpointSlice(slice("a", "svc", "10.0.0.2", "10.0.0.3")))
	step("one replaced", "set ns/svc a 10.0.0.2 10.0.0.3")
	tr.setSlice(translate.ParseEndpointSlice(slice("a", "svc", "10.0.0.2")))
	tr.setSlice(translate.ParseEndpointSlice(slice("b", "svc", "10.0.0.3")))
	step("one moves", "set ns/svc a 10.0.0.2", "set ns/svc b 10.0.0.3")
	tr.setSlice(translate.ParseEndpointSlice(slice("b", "svc", "10.0.0.4")))
	tr.setSlice(translate.ParseEndpointSlice(slice("b", "svc", "10.0.0.3")))
	step("there and back", "set ns/svc b 10.0.0.3")
	tr.setSlice(translate.ParseEndpointSlice(slice("b", "other", "10.0.0.3")))
	step("a slice goes over to another service", "set ns/other b 10.0.0.3", "set ns/svc b")
	tr.deleteSlice(translate.ParseEndpointSlice(slice("a", "svc")).Name)
	tr.deleteSlice(translate.ParseEndpointSlice(slice("b", "other")).Name)
	step("gone", "set ns/other b", "set ns/svc a")
	tr.deleteSlice(translate.ParseEndpointSlice(slice("a", "svc")).Name)
	step("gone twice")
}

// With IgnoreExternalIPs, the tracker drops external IPs. It does not modify the
// Service that the source holds.
func TestTrackerIgnoresExternalIPs(t *testing.T) {
	svc := translate.ParseService(apiService(func(svc *corev1.Service) { svc.Spec.ExternalIPs = []string{"192.0.2.1"} }))
	for _, ignore := range []bool{false, true} {
		tr := newTracker(&Config{IgnoreExternalIPs: ignore}, eventLog{}, newMetrics())
		tr.setService(svc)
		got := tr.services[svc.Name]
		if len(got.ExternalIPs) == 0 != ignore || len(got.ClusterIPs) != 1 {
			t.Errorf("IgnoreExternalIPs %v: ClusterIPs %v, external IPs %v", ignore, got.ClusterIPs, got.ExternalIPs)
		}
		if len(svc.Service.ExternalIPs) != 1 {
			t.Errorf("IgnoreExternalIPs %v: the source's external IPs are %v now", ignore, svc.Service.ExternalIPs)
		}
	}
}

// What makes no sense is told once, counted while it lasts, and told again when it is something else.
func TestTrackerReports(t *testing.T) {
	var recorded tabletest.Events
	m := newMetrics()
	tr := newTracker(&Config{}, &recorded, m)
	step := func(what string, events, invalid int, externalIPs ...string) {
		t.Helper()
		tr.setService(translate.ParseService(apiService(func(svc *corev1.Service) { svc.Spec.ExternalIPs = externalIPs })))
		if n := testutil.ToFloat64(m.invalidObjects); len(recorded) != events || n != float64(invalid) {
			t.Errorf("%s: %d events, %v objects; want %d, %d", what, len(recorded), n, events, invalid)
		}
	}
	step("sound", 0, 0, "192.0.2.1")
	step("invalid", 1, 1, "192.0.2.256")
	step("the same", 1, 1, "192.0.2.256")
	step("something else", 2, 1, "x")
	step("sound again", 2, 0, "192.0.2.1")
}
