package packet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestHealthCheckNodePort shows the answers of each node at the
// healthCheckNodePort of a service with externalTrafficPolicy Local.
func TestHealthCheckNodePort(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const port = 32111
	s := service{
		name: "web", spec: fmt.Sprintf("type: LoadBalancer\nexternalTrafficPolicy: Local\nhealthCheckNodePort: %d",
			port),
	}
	expect := func(t *testing.T, node *lab.Node, endpoints int) {
		t.Helper()
		for _, addr := range node.Addrs() {
			eventually(t, addr.String(), func() error {
				return c.healthCheck(netip.AddrPortFrom(addr, port), endpoints)
			})
		}
	}
	for _, step := range []struct {
		endpoints    string
		node1, node2 int // local endpoints
	}{
		{"a1", 1, 0},
		{"a1 a2 b1", 2, 1},
		{"a1 a2:unready b2", 1, 1},
		{"a1:terminating", 0, 0},
		{"", 0, 0},
		{"b1 b2", 0, 2},
	} {
		s.slices = []slice{{endpoints: step.endpoints}}
		c.serve("web", &s)
		t.Run("endpoints "+step.endpoints, func(t *testing.T) {
			for i, n := range []int{step.node1, step.node2} {
				expect(t, c.Nodes()[i], n)
			}
		})
	}
	c.remove("web")
	c.settle()
	eventually(t, "server of a removed service", func() error {
		at := netip.AddrPortFrom(c.Node1.IPv4, port)
		result := lab.Probe(t.Context(), c.Client, "tcp", at, lab.ProbeOptions{Timeout: refusalTimeout})
		if result.Outcome != lab.Refused {
			return fmt.Errorf("got %v, want refused", result)
		}
		return nil
	})
}

// healthCheck checks the answer of a health server for a number of endpoints.
func (c *cluster) healthCheck(at netip.AddrPort, endpoints int) error {
	response, body, err := c.Client.Get(c.t.Context(), "http://"+at.String()+"/healthz", answerTimeout)
	if err != nil {
		return err
	}
	var health struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	if err := json.Unmarshal(body, &health); err != nil {
		return fmt.Errorf("%q: %w", body, err)
	}
	status := http.StatusOK
	if endpoints == 0 {
		status = http.StatusServiceUnavailable
	}
	weight := response.Header.Get("X-Load-Balancing-Endpoint-Weight")
	if response.StatusCode != status || health.LocalEndpoints != endpoints || weight != fmt.Sprint(endpoints) ||
		!health.ServiceProxyHealthy || health.Service.Namespace != "default" || health.Service.Name != "web" {
		return fmt.Errorf("got status %d, weight %q, body %s; want status %d and %d endpoints",
			response.StatusCode, weight, body, status, endpoints)
	}
	return nil
}
