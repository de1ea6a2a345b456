package packet

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// metrics returns the metrics of node1, in the text format.
func (c *cluster) metrics(t *testing.T) string {
	t.Helper()
	_, body, err := c.Node1.Get(t.Context(), "http://127.0.0.1:10249/metrics", 0)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// metric returns the value of a metric of node1.
func (c *cluster) metric(t *testing.T, nameAndLabels string) (value int) {
	t.Helper()
	_, after, ok := strings.Cut(c.metrics(t), "\n"+nameAndLabels+" ")
	if !ok {
		t.Fatalf("got no metric %q", nameAndLabels)
	}
	if _, err := fmt.Sscan(after, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// refusals returns the numbers of packets of a family that node1 rejected or
// dropped, by reason.
func (c *cluster) refusals(t *testing.T, f family) map[string]int {
	t.Helper()
	n := make(map[string]int)
	for metric, reasons := range map[string]string{
		"nftproxy_rejected_packets_total": "NoEndpoints NoWeight UnknownPort",
		"nftproxy_dropped_packets_total":  "NoLocalEndpoints UnallocatedAddress SourceRange",
	} {
		for _, reason := range strings.Fields(reasons) {
			n[reason] = c.metric(t, fmt.Sprintf(`%s{ip_family="%s",reason="%s"}`, metric, f, reason))
		}
	}
	return n
}

// TestCounters shows that each packet of a new connection that is rejected or
// dropped is counted once, with its reason, and that others are not counted.
func TestCounters(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	const local = "type: LoadBalancer\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local"
	const guarded = "type: LoadBalancer\nloadBalancerSourceRanges: {{.Ranges \"node2\"}}"
	services := map[string]*service{
		"none":    {name: "none", spec: "type: NodePort"},
		"far":     {name: "far", spec: local, endpoints: "b1"},
		"near":    {name: "near", spec: local, endpoints: "a1"},
		"guarded": {name: "guarded", spec: guarded, endpoints: "a1"},
		"absent":  {name: "absent", number: 0x77},
	}
	for _, s := range services {
		s.setDefaults(c)
	}
	c.serve("counted", services["none"], services["far"], services["near"], services["guarded"])
	for _, tt := range []struct{ service, from, to, reason string }{
		{"none", "pod1", "clusterIP", "NoEndpoints"},
		{"none", "node1", "clusterIP", "NoEndpoints"},
		{"none", "client", "nodePort@node1", "NoEndpoints"},
		{"near", "pod1", "clusterIP:9", "UnknownPort"},
		{"far", "pod1", "clusterIP", "NoLocalEndpoints"},
		{"far", "client", "loadBalancerIP", "NoLocalEndpoints"},
		{"far", "client", "nodePort@node1", "NoLocalEndpoints"},
		{"absent", "pod1", "clusterIP", "UnallocatedAddress"},
		{"guarded", "client", "loadBalancerIP", "SourceRange"},
		{"guarded", "client", "clusterIP", ""},
		{"near", "pod1", "clusterIP", ""},
		{"near", "client", "nodePort@node1", ""},
	} {
		for _, f := range bothFamilies() {
			c.counts(t, services[tt.service], tt.from, tt.to, f, tt.reason)
		}
	}
}

// counts sends one UDP packet to a destination of a service. Only the counter
// of the reason must increase, by one.
func (c *cluster) counts(t *testing.T, s *service, from, to string, f family, reason string) {
	t.Helper()
	want := c.refusals(t, f)
	if reason != "" {
		want[reason]++
	}
	one := c.check(s, expectation{line: reason}, from, to, f, "udp")
	one.probe(t.Context(), lab.ProbeOptions{Timeout: silence})
	if got := c.refusals(t, f); !maps.Equal(got, want) {
		t.Errorf("%s -> %s of %s, %v: got %v, want %v", from, to, s.name, f, got, want)
	}
}

// connections returns the numbers of connections that node1 counted, by
// service, family and protocol.
func (c *cluster) connections(t *testing.T) map[string]int {
	t.Helper()
	n := make(map[string]int)
	line := regexp.MustCompile(`nftproxy_service_connections_total\{ip_family="(\w+)",namespace="default",` +
		`port="[\w-]+",protocol="(\w+)",service="([\w-]+)"\} (\d+)`)
	for _, m := range line.FindAllStringSubmatch(c.metrics(t), -1) {
		value, err := strconv.Atoi(m[4])
		if err != nil {
			t.Fatal(err)
		}
		n[m[3]+" "+m[1]+" "+m[2]] += value
	}
	return n
}

// TestServiceMetrics shows that each new connection to an annotated Service is
// counted once, whichever address it uses, and that the numbers survive changes
// and a restart. Other Services are not counted.
func TestServiceMetrics(t *testing.T) {
	t.Parallel()
	flags := append(defaultFlags(), "--service-metrics=annotated")
	c := newIdleCluster(t, flags...)
	c.start()
	const everywhere = "type: LoadBalancer\nexternalIPs: {{.ExternalIPs}}"
	counted := &service{
		name: "counted", spec: everywhere, metadata: "annotations: {nftproxy.io/metrics: \"true\"}", endpoints: "a1 b1",
	}
	other := &service{name: "other", spec: everywhere, endpoints: "a1 b1"}
	c.serve("services", counted, other)
	want := make(map[string]int)
	for _, f := range bothFamilies() {
		for _, protocol := range []string{"TCP", "UDP"} {
			want[fmt.Sprintf("counted %s %s", f, protocol)] = 0
		}
	}
	check := func(when string) {
		t.Helper()
		if got := c.connections(t); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", when, got, want)
		}
	}
	check("before the first connection")
	connect := func() {
		for _, s := range []*service{counted, other} {
			for _, f := range bothFamilies() {
				for _, protocol := range []string{"TCP", "UDP"} {
					for _, to := range []string{"clusterIP", "externalIP", "loadBalancerIP", "nodePort@node1"} {
						c.connectOnce(t, s, to, f, strings.ToLower(protocol))
						if s == counted {
							want[fmt.Sprintf("counted %s %s", f, protocol)]++
						}
					}
				}
			}
		}
	}
	connect()
	check("connections")
	c.serve("more", &service{name: "more", spec: everywhere, endpoints: "a2"})
	counted.endpoints = "a1 a2"
	c.serve("services", counted, other)
	check("change of endpoints")
	connect()
	c.restart(flags...)
	check("restart")
}

// connectOnce connects from the client to an address of a service.
func (c *cluster) connectOnce(t *testing.T, s *service, to string, f family, network string) {
	t.Helper()
	one := c.check(s, expectation{}, "client", to, f, network)
	if r := one.probe(t.Context(), lab.ProbeOptions{Timeout: answerTimeout}); r.Outcome != lab.Answered {
		t.Errorf("client -> %s of %s, %v, %s: got %v", to, s.name, f, network, r)
	}
}
