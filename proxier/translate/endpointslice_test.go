package translate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// endpointsOf returns the Service, the endpoints and the problems of an API
// object.
func endpointsOf(slice *discoveryv1.EndpointSlice) (cluster.ServiceName, []*cluster.Endpoint, []error) {
	s := ParseEndpointSlice(slice)
	return s.Service, s.Endpoints, s.Problems
}

func TestParseEndpointSlice(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  sliceMeta(map[string]string{discoveryv1.LabelServiceName: "svc"}),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("all")}, {Port: ptr.To(int32(8080))}, {Name: ptr.To("invalid"), Port: ptr.To(int32(0))},
		},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.2"},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Terminating: ptr.To(true)}},
			{Addresses: []string{"10.0.0.2"}}, // the same address, ready
			{Addresses: []string{"fd00::1"}},
			{Addresses: []string{"10.0.0.1"}, NodeName: ptr.To("n"),
				Conditions: discoveryv1.EndpointConditions{
					Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true),
				},
				Hints: &discoveryv1.EndpointHints{
					ForZones: []discoveryv1.ForZone{{Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "n"}},
				}},
		},
	}
	name, endpoints, problems := endpointsOf(slice)
	var got []string
	for _, e := range endpoints {
		got = append(got, fmt.Sprintf("%s node=%q ready=%v serving=%v terminating=%v hints=%v ports=%v",
			e.Addr, e.Node, e.Ready, e.Serving, e.Terminating, e.Hints, e.Ports))
	}
	want := []string{
		`10.0.0.1 node="n" ready=false serving=true terminating=true hints=&{[a] [n]} ports=[{ tcp 8080} {all tcp 0}]`,
		`10.0.0.2 node="" ready=true serving=true terminating=false hints=<nil> ports=[{ tcp 8080} {all tcp 0}]`,
	}
	if name != (cluster.ServiceName{Namespace: "ns", Name: "svc"}) || !slices.Equal(got, want) {
		t.Errorf("got Service %s with endpoints\n%s\nwant ns/svc with\n%s",
			name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	wantProblems := "ports[2]: port 0 is out of range\n" +
		`endpoints[2].addresses[0]: "fd00::1" is not the IPv4 address of an endpoint`
	if got := errors.Join(problems...).Error(); got != wantProblems {
		t.Errorf("got problems\n%s\nwant\n%s", got, wantProblems)
	}
	slice.AddressType = discoveryv1.AddressTypeFQDN
	if name, endpoints, _ := endpointsOf(slice); name != (cluster.ServiceName{}) || endpoints != nil {
		t.Errorf("FQDN: got Service %v with endpoints %v, want none", name, endpoints)
	}
}

// sliceMeta returns the metadata of EndpointSlice ns/svc-1.
func sliceMeta(labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: "svc-1", Labels: labels}
}

// Labels of an EndpointSlice determine whether it is used.
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
			ObjectMeta:  sliceMeta(tt.labels),
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		})
		used := name == (cluster.ServiceName{Namespace: "ns", Name: "svc"}) && len(endpoints) == 1
		if used != tt.used || problems != nil {
			t.Errorf("%s: got Service %v, %d endpoints, problems %v; want used %v",
				tt.name, name, len(endpoints), problems, tt.used)
		}
	}
}

// Conditions that are nil have the defaults of the API: ready, serving, and
// not terminating (k8s.io/api/discovery/v1.EndpointConditions).
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
		e := endpointOf(&discoveryv1.Endpoint{Conditions: tt.conditions}, cluster.EndpointKey{}, nil)
		if e.Ready != tt.ready || e.Serving != tt.serving || e.Terminating != tt.terminating {
			t.Errorf("%s: got ready %v, serving %v, terminating %v; want %v, %v, %v", tt.conditions.String(),
				e.Ready, e.Serving, e.Terminating, tt.ready, tt.serving, tt.terminating)
		}
	}
}

// Only the first address of an endpoint is used, because the API gives the
// others no meaning. Problems of the others are not reported.
func TestFirstAddressOfEndpoint(t *testing.T) {
	_, endpoints, problems := endpointsOf(&discoveryv1.EndpointSlice{
		ObjectMeta:  sliceMeta(map[string]string{discoveryv1.LabelServiceName: "svc"}),
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
		t.Errorf("got endpoints %q, want fd00::2 and fd00::3", got)
	}
	want := `endpoints[1].addresses[0]: "10.0.0.1" is not the IPv6 address of an endpoint`
	if len(problems) != 1 || problems[0].Error() != want {
		t.Errorf("got problems %v, want %s", problems, want)
	}
}
