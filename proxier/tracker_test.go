package proxier

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

<<<<<<< HEAD
// apiService returns a Service of the API, after change modified it.
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

// apiSlice returns an EndpointSlice of the API.
func apiSlice(name, service string, ips ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To(int32(80))}},
	}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s
}

// recordingSink records the calls of a Sink.
type recordingSink struct{ calls []string }

func (s *recordingSink) add(format string, args ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}
func (s *recordingSink) Setup() error                        { return nil }
func (s *recordingSink) Sync() error                         { return nil }
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

// The tracker passes the EndpointSlices that changed since the last handover.
func TestTrackerSlices(t *testing.T) {
	slice := func(name, service string, ips ...string) *translate.EndpointSlice {
		return translate.ParseEndpointSlice(apiSlice(name, service, ips...))
	}
	tr := newTracker(new(Config), newEventLog(nil), newMetrics(), nft.IPv4, nft.IPv6)
	tr.take(nft.IPv4)
	step := func(name string, want ...string) {
		t.Helper()
		var s recordingSink
		taken := tr.take(nft.IPv4)
		taken.passTo(&s, nil)
		slices.Sort(s.calls)
		if !slices.Equal(s.calls, want) {
			t.Errorf("%s: got calls %q, want %q", name, s.calls, want)
=======
// The tracker holds the last version of an EndpointSlice, which the source
// holds, too, and no slices of a family that is not served.
func TestTrackerHoldsLastVersion(t *testing.T) {
	tr := newTracker(new(Config), eventLog{}, newMetrics(), nft.IPv4)
	slice := func(f nft.Family, ip string) *translate.EndpointSlice {
		name := translate.SliceName{Namespace: "ns", Name: f.Name()}
		return &translate.EndpointSlice{
			Name: name, Service: cluster.ServiceName{Namespace: "ns", Name: "svc"}, Family: f,
			Endpoints: []*cluster.Endpoint{tabletest.Endpoint(ip)},
>>>>>>> da7b53e (proxier: tests are scripts)
		}
	}
	tr.setSlice(slice(nft.IPv4, "10.0.0.1"))
	tr.setSlice(slice(nft.IPv6, "fd00::1"))
	if tr.replaceSlice(slice(nft.IPv4, "10.0.0.1")) {
		t.Error("an equal slice: got a change")
	}
<<<<<<< HEAD
	tr.setSlice(again)
	step("an equal slice", "set ns/svc a 10.0.0.1 10.0.0.2")
	if tr.slices[again.Name] != again {
		t.Error("an equal slice: got an older version")
	}
	tr.setSlice(again)
	step("the same slice")
	tr.setSlice(slice("a", "svc", "10.0.0.2", "10.0.0.3"))
	step("an endpoint is replaced", "set ns/svc a 10.0.0.2 10.0.0.3")
	tr.setSlice(slice("a", "svc", "10.0.0.2"))
	tr.setSlice(slice("b", "svc", "10.0.0.3"))
	step("an endpoint moves to another slice", "set ns/svc a 10.0.0.2", "set ns/svc b 10.0.0.3")
	tr.setSlice(slice("b", "svc", "10.0.0.4"))
	tr.setSlice(slice("b", "svc", "10.0.0.3"))
	step("an endpoint is replaced and restored", "set ns/svc b 10.0.0.3")
	tr.setSlice(slice("b", "other", "10.0.0.3"))
	step("a slice moves to another Service", "set ns/other b 10.0.0.3", "set ns/svc b")
	tr.setSlice(slice("a", ""))
	tr.setSlice(slice("b", ""))
	step("both slices are deleted", "set ns/other b", "set ns/svc a")
	tr.setSlice(slice("a", ""))
	step("a slice is deleted again")
}

// With IgnoreExternalIPs, the tracker drops external IPs. It does not modify
// the Service that the source holds.
func TestTrackerIgnoresExternalIPs(t *testing.T) {
	svc := translate.ParseService(apiService(func(svc *corev1.Service) {
		svc.Spec.ExternalIPs = []string{"192.0.2.1"}
	}))
	for _, ignore := range []bool{false, true} {
		tr := newTracker(&Config{IgnoreExternalIPs: ignore}, newEventLog(nil), newMetrics(), nft.IPv4)
		tr.setService(svc)
		got := tr.take(nft.IPv4).services[svc.Name]
		if len(got.ExternalIPs) == 0 != ignore || len(got.ClusterIPs) != 1 {
			t.Errorf("IgnoreExternalIPs %v: got ClusterIPs %v, external IPs %v",
				ignore, got.ClusterIPs, got.ExternalIPs)
		}
		if len(svc.Service.ExternalIPs) != 1 {
			t.Errorf("IgnoreExternalIPs %v: the Service of the source was modified: got external IPs %v",
				ignore, svc.Service.ExternalIPs)
		}
	}
}

// Without nft_hash, the tracker selects endpoints at random, and reports it
// once. It does not modify the Service that the source holds.
func TestTrackerWithoutHash(t *testing.T) {
	svc := translate.ParseService(apiService(func(svc *corev1.Service) {
		svc.Annotations = map[string]string{translate.AnnotationBalance: "source-port-hash"}
	}))
	for _, noHash := range []bool{false, true} {
		var recorded tabletest.Events
		tr := newTracker(&Config{NodeName: "node1", NoHash: noHash}, &recorded, newMetrics(), nft.IPv4)
		tr.setService(svc)
		tr.setService(svc)
		got := tr.take(nft.IPv4).services[svc.Name].Balance
		if (got == cluster.BalanceRandom) != noHash || svc.Service.Balance != cluster.BalanceSourcePortHash {
			t.Errorf("NoHash %v: got balance %v, in the source %v", noHash, got, svc.Service.Balance)
		}
		const note = "metadata.annotations[nftproxy.io/balance]: the kernel of node node1 has no nft_hash"
		reported := len(recorded) == 1 && strings.HasSuffix(recorded[0].Note, note)
		if reported != noHash || len(recorded) > 1 {
			t.Errorf("NoHash %v: got events %+v", noHash, recorded)
		}
	}
}

// Each set of problems of an object is reported once. The object is counted
// while it has problems.
func TestTrackerReports(t *testing.T) {
	var recorded tabletest.Events
	m := newMetrics()
	tr := newTracker(&Config{}, &recorded, m)
	step := func(name string, events, invalid int, externalIPs ...string) {
		t.Helper()
		svc := apiService(func(svc *corev1.Service) { svc.Spec.ExternalIPs = externalIPs })
		tr.setService(translate.ParseService(svc))
		if n := testutil.ToFloat64(m.invalidObjects); len(recorded) != events || n != float64(invalid) {
			t.Errorf("%s: got %d events, %v objects; want %d, %d", name, len(recorded), n, events, invalid)
		}
	}
	step("a valid Service", 0, 0, "192.0.2.1")
	step("an invalid Service", 1, 1, "192.0.2.256")
	step("the same problem", 1, 1, "192.0.2.256")
	step("another problem", 2, 1, "x")
	step("a valid Service again", 2, 0, "192.0.2.1")
}

// The tracker keeps the triggers of the families that are served.
func TestTriggers(t *testing.T) {
	tr := newTracker(new(Config), newEventLog(nil), newMetrics(), nft.IPv4)
	set := func(typ discoveryv1.AddressType, ip string) {
		s := apiSlice(string(typ), "web", ip)
		s.AddressType = typ
		s.Annotations = map[string]string{
			corev1.EndpointsLastChangeTriggerTime: time.Now().Add(time.Minute).Format(time.RFC3339Nano),
		}
		tr.setSlice(translate.ParseEndpointSlice(s))
	}
	for i := range 3 {
		set(discoveryv1.AddressTypeIPv4, fmt.Sprint("10.244.0.", i+1))
		set(discoveryv1.AddressTypeIPv6, fmt.Sprint("fd00::", i+1))
	}
	if n := len(tr.slices); n != 1 {
		t.Errorf("got %d EndpointSlices, want 1 of the family that is served", n)
	}
	if n := len(tr.take(nft.IPv4).triggers); n != 3 {
		t.Errorf("IPv4: got %d triggers, want 3", n)
	}
	if n := len(tr.take(nft.IPv4).triggers); n != 0 {
		t.Errorf("taken again: got %d triggers, want 0", n)
=======
	again := slice(nft.IPv4, "10.0.0.1")
	if tr.setSlice(again); len(tr.slices) != 1 || tr.slices[again.Name] != again {
		t.Errorf("got %v, want the last version of the IPv4 slice", tr.slices)
>>>>>>> da7b53e (proxier: tests are scripts)
	}
}
