package packet

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/flows"
	"github.com/nftproxy/nftproxy/test/lab"
)

// TestFlows shows that `nftproxy flows` counts the connections of each endpoint
// by state: open TCP connections, and UDP flows.
func TestFlows(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := c.serve("{name: web, spec: {type: NodePort}, endpoints: a1 b1}")
	other := c.serve("{name: other, endpoints: a1}")
	for _, f := range bothFamilies() {
		to := c.destination(web, "clusterIP", f)
		tcp := c.openFlows(t, "tcp", to, 12)
		udp := c.openFlows(t, "udp", to, 6)
		c.openFlows(t, "tcp", c.destination(other, "clusterIP", f), 1)

		report := c.flows(t, to.String())
		if len(report.Groups) != 2 || len(report.Notes) != 0 {
			t.Fatalf("%s: got %+v, want TCP and UDP", f, report)
		}
		checkFlows(t, report.Groups[0], "default/web:http-tcp", "ESTABLISHED", tcp)
		checkFlows(t, report.Groups[1], "default/web:http-udp", "REPLIED", udp)
	}
	// A Service has the connections of both families, and those to its
	// NodePort.
	c.openFlows(t, "tcp", c.destination(web, "nodePort@node1", ipv4), 3)
	report := c.flows(t, "svc/default/web", "--protocol", "tcp")
	if len(report.Groups) != 1 || report.Groups[0].States["ESTABLISHED"] != 12+12+3 {
		t.Errorf("got %+v, want 27 connections", report.Groups)
	}
	top := c.flows(t)
	most := top.Groups[0]
	if most.ServicePort != "default/web:http-tcp" || most.Connections < 12 || top.Total < 12+12+6+6+3 {
		t.Errorf("got %+v, total %d, want web first", most, top.Total)
	}
}

// openFlows opens connections of pod1 until the test ends. It returns their
// number by the endpoint that answers.
func (c *cluster) openFlows(t *testing.T, network string, to netip.AddrPort, n int) map[netip.AddrPort]int {
	t.Helper()
	from, counts := c.origin("pod1"), make(map[netip.AddrPort]int)
	for range n {
		conn, result := lab.Open(t.Context(), from.Namespace, network, to, lab.ProbeOptions{})
		if result.Outcome != lab.Answered {
			t.Fatalf("%s to %v: got %v", network, to, result)
		}
		t.Cleanup(func() { conn.Close() })
		counts[netip.AddrPortFrom(c.origin(result.Answer.Server).source(indexOf(to.Addr())), firstTarget)]++
	}
	return counts
}

// checkFlows compares the connections in a state with the wanted ones.
func checkFlows(t *testing.T, g *flows.Group, servicePort, state string, want map[netip.AddrPort]int) {
	t.Helper()
	got, all, most := make(map[netip.AddrPort]int), 0, 0
	for _, e := range g.Endpoints {
		if n := e.States[state]; n > 0 {
			got[e.Address] = n
		}
		if e.Unused {
			t.Errorf("%s: got unused endpoint %+v", servicePort, e)
		}
		all, most = all+e.Connections, max(most, e.Connections)
	}
	if g.ServicePort != servicePort || !maps.Equal(got, want) || len(g.Endpoints) != 2 {
		t.Errorf("got %+v\nwant %v of %s", g, want, servicePort)
	}
	if skew := float64(most) * 2 / float64(all); g.Skew != skew {
		t.Errorf("%s: got skew %v, want %v", servicePort, g.Skew, skew)
	}
}
