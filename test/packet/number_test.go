package packet

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// manyIPs is the number of additional external IPs of each family.
const manyIPs = 2100

// ManyExternalIPs returns spec.externalIPs with so many addresses that the
// service ports have numbers.
func (v view) ManyExternalIPs() string {
	all := v.addresses(lab.ExternalRanges())
	ips := all[:]
	n := byte(v.service.number)
	for i := range manyIPs {
		high, low := byte(i>>8), byte(i)
		ips = append(ips, netip.AddrFrom4([4]byte{100, 64 + n, high, low}),
			netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 64, 13: n, 14: high, 15: low}))
	}
	return list(ips)
}

// TestManyFrontends shows that service ports with many frontends and endpoints
// are served on each of them.
func TestManyFrontends(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const spec = "type: LoadBalancer\nexternalIPs: {{.ManyExternalIPs}}"
	all := []scenario{
		{
			service: service{name: "many", spec: spec, endpoints: "a1 b1"},
			expect: `
				pod1 pod2 node1 -> clusterIP => a1 b1 as itself
				client pod1 node1 -> externalIP loadBalancerIP nodePort@node1 => a1 b1 as node1
				pod2 -> externalIP nodePort@node2 => a1 b1 as node2
			`,
		},
		{
			service: service{name: "many-local", spec: spec + "\nexternalTrafficPolicy: Local", endpoints: "a1 a2 b1"},
			expect: `
				client -> externalIP loadBalancerIP nodePort@node1 => a1 a2 as itself
				client -> nodePort@node2 => b1 as itself
				pod1 -> externalIP loadBalancerIP nodePort@node1 => a1 a2 b1 as itself
				node1 -> externalIP nodePort@node1 => a1 a2 b1 as node1
				pod1 pod2 -> clusterIP => a1 a2 b1 as itself
			`,
		},
		{
			service: service{
				name: "many-local-far", endpoints: "b1 b2",
				spec: spec + "\nexternalTrafficPolicy: Local\ninternalTrafficPolicy: Local",
			},
			expect: `
				client -> externalIP loadBalancerIP nodePort@node1 => dropped
				pod1 node1 -> clusterIP => dropped
				pod2 -> clusterIP => b1 b2 as itself
				pod1 -> externalIP loadBalancerIP => b1 b2 as itself
			`,
		},
	}
	c.serve("scenarios", &all[0].service, &all[1].service, &all[2].service)
	for i, p := range c.proxies { // the marker does not wait for large Services
		want := []int{20, 24}[i] // of two protocols and families
		eventually(t, "chains of service ports with numbers on "+p.node, func() error {
			if n := len(portChain.FindAllString(tables(t, p.at), -1)); n != want {
				return fmt.Errorf("got %d, want %d", n, want)
			}
			return nil
		})
	}
	c.expect(t, all)
}

// portChain matches the line of a chain of a service port, without a rule.
var portChain = regexp.MustCompile(`(?m)chain port-\S+: $`)
