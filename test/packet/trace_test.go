package packet

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/trace"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab"
)

// TestTrace shows that `nftproxy trace` reports the fate of real packets: the
// endpoint that answered, the source address that it saw, or the refusal. The
// fate must be one that package explain predicts, with its reason.
func TestTrace(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newIdleCluster(t, defaultFlags()...)
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	c.start()
	scenarios := traceScenarios()
	var services []*service
	for i := range scenarios {
		services = append(services, &scenarios[i].service)
	}
	c.serve("scenarios", services...)
	for i := range scenarios {
		for _, k := range c.checks(&scenarios[i].service, scenarios[i].expect) {
			k.traced(t, scenarios[i].metadata == sourceHash)
		}
	}
}

func traceScenarios() []scenario {
	all := "TCP UDP SCTP"
	if testing.Short() { // on emulated machines, each packet takes seconds
		all = "TCP"
	}
	return []scenario{
		{
			service: service{name: "web", protocols: all, spec: "type: LoadBalancer", endpoints: "a1 b1"},
			expect: `
				pod1 node1 -> clusterIP => a1 b1 as itself
				client -> clusterIP loadBalancerIP nodePort@node1 => a1 b1 as node1
				pod1 -> clusterIP:9 => refused
			`,
		},
		{
			service: service{name: "empty", protocols: all, spec: "type: NodePort"},
			expect:  `pod1 node1 -> clusterIP nodePort@node1 => refused`,
		},
		{
			service: service{name: "sticky", protocols: all, spec: "sessionAffinity: ClientIP", endpoints: "a1 b1"},
			expect:  `pod1 -> clusterIP => a1 b1 as itself`,
		},
		{
			service: service{
				name: "hashed", protocols: all, metadata: sourceHash, spec: "type: LoadBalancer",
				endpoints: "a1 a2 b1 b2",
			},
			expect: `
				pod1 node1 -> clusterIP => a1 a2 b1 b2 as itself
				client -> loadBalancerIP nodePort@node1 => a1 a2 b1 b2 as node1
			`,
		},
		{
			service: service{
				name: "port-hashed", protocols: all, metadata: sourcePortHash, spec: "type: LoadBalancer",
				endpoints: "a1 a2 b1 b2",
			},
			expect: `
				pod1 -> clusterIP => a1 a2 b1 b2 as itself
				client -> nodePort@node1 => a1 a2 b1 b2 as node1
			`,
		},
		{
			service: service{
				name: "weighted", protocols: all, spec: "type: LoadBalancer",
				slices: []slice{{endpoints: "a1 b1", weight: "3"}, {endpoints: "a2"}, {endpoints: "b2", weight: "0"}},
			},
			expect: `
				pod1 node1 -> clusterIP => a1 a2 b1 as itself
				client -> loadBalancerIP nodePort@node1 => a1 a2 b1 as node1
			`,
		},
		{
			service: service{name: "hairpin", protocols: all, endpoints: "pod1"},
			expect:  `pod1 -> clusterIP => pod1 as node1`,
		},
		{
			service: service{
				name: "far", protocols: all,
				spec:      "type: LoadBalancer\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
				endpoints: "b1",
			},
			expect: `
				pod1 -> clusterIP => dropped
				client -> loadBalancerIP nodePort@node1 => dropped
				node1 -> loadBalancerIP => b1 as node1
			`,
		},
		{
			service: service{
				name: "guarded", protocols: all, endpoints: "a1",
				spec: "type: LoadBalancer\nloadBalancerSourceRanges: {{.Ranges \"pod1\"}}",
			},
			expect: `
				pod1 -> loadBalancerIP => a1 as node1
				client -> loadBalancerIP => dropped
			`,
		},
	}
}

// traced makes an attempt while its first packet is traced on node1, and
// compares the packet with the attempt and with the prediction of package
// explain, which must be one endpoint if exact is true.
func (c *check) traced(t *testing.T, exact bool) {
	t.Helper()
	node := c.cluster.Node1
	run := startTrace(t, node.Namespace, c.to.String(), "--count", "1", "--protocol", c.network)
	result := c.probe(t.Context(), lab.ProbeOptions{Timeout: c.timeout()})
	packet := run.next(t)
	if code := run.wait(t); code != 0 {
		t.Errorf("%s: got exit code %d, want 0", c.describe, code)
	}
	if result.Outcome != c.want.outcome {
		t.Fatalf("%s: got %v, want %v", c.describe, result, c.want.outcome)
	}
	if err := c.agrees(packet, result); err != nil {
		t.Errorf("%s: %v\nresult %v\npacket %+v", c.describe, err, result, packet)
	}
	if err := c.predicted(node, packet, exact); err != nil {
		t.Errorf("%s: %v\npacket %+v", c.describe, err, packet)
	}
}

func (c *check) timeout() time.Duration {
	if c.want.outcome == lab.TimedOut {
		return silence
	}
	return answerTimeout
}

// agrees returns an error if a packet does not agree with the outcome of its
// attempt.
func (c *check) agrees(p trace.Packet, result lab.Result) error {
	if p.Destination != c.to || p.Source.Addr() != c.origin.source(c.family) || p.Protocol != c.network {
		return fmt.Errorf("want a packet to %v from %v", c.to, c.origin.source(c.family))
	}
	switch {
	case result.Outcome == lab.Refused && p.Action == explain.Reject:
		return nil
	case result.Outcome == lab.TimedOut && p.Action == explain.Drop:
		return nil
	case result.Outcome != lab.Answered || p.Action != explain.ToEndpoint || p.Final == nil:
		return fmt.Errorf("got %s", p.Action)
	}
	server := c.cluster.origin(result.Answer.Server)
	if p.Endpoint.Addr() != server.source(c.family) || p.Final.Destination != p.Endpoint {
		return fmt.Errorf("got endpoint %v, %v answered", p.Endpoint, server.source(c.family))
	}
	if p.Final.Source != result.Answer.Source {
		return fmt.Errorf("got source address %v, the endpoint saw %v", p.Final.Source, result.Answer.Source)
	}
	return nil
}

// predicted returns an error if package explain does not predict the fate of a
// packet.
func (c *check) predicted(node *lab.Node, p trace.Packet, exact bool) error {
	q := explain.Query{
		Destination: p.Destination, Protocol: protocolOf(c.network), Source: p.Source.Addr(), Interface: p.Interface,
	}
	return inTable(node, nft.FamilyOf(p.Destination.Addr()), func(k *explain.Kernel) error {
		r, err := k.Explain(q)
		if err != nil {
			return err
		}
		same := func(o explain.Outcome) bool {
			return o.Action == p.Action && o.Endpoint == p.Endpoint && o.Masqueraded == p.Masqueraded &&
				o.RejectWith == p.RejectWith && o.Reason == p.Reason
		}
		outcome := slices.ContainsFunc(r.Outcomes, same) && (len(r.Outcomes) == 1 || !exact)
		if !outcome || p.ServicePort != r.ServicePort || p.Explain != "" {
			return fmt.Errorf("explain predicts %s %+v", r.ServicePort, r.Outcomes)
		}
		return nil
	})
}

// needOwnedTables skips a test on kernels that cannot delete the table of a
// process that ends.
func needOwnedTables(t *testing.T) {
	t.Helper()
	var major, minor int
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major < 5 || major == 5 && minor < 12 {
		t.Skip("tables with an owner require Linux 5.12")
	}
}
