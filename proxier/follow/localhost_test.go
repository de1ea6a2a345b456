package follow

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/localhost"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// recordedPorts is a localhostServer that records its NodePorts and the number
// of calls.
type recordedPorts struct {
	localhostServer // nil
	ports           map[uint16]localhost.NodePort
	calls           int
}

func (r *recordedPorts) Set(n localhost.NodePort) {
	r.calls++
	r.ports[n.Port] = n
}

func (r *recordedPorts) Delete(port uint16) {
	r.calls++
	delete(r.ports, port)
}

// text returns the NodePorts in one line each, without the ports of targets.
func (r *recordedPorts) text() string {
	var lines []string
	for _, port := range slices.Sorted(maps.Keys(r.ports)) {
		n := r.ports[port]
		var addrs []netip.Addr
		for _, t := range n.Targets {
			addrs = append(addrs, t.Addr())
		}
		lines = append(lines, fmt.Sprintf("%d %s %v %v", port, n.ServicePort, addrs, n.Affinity))
	}
	return strings.Join(lines, "\n")
}

// The server gets the TCP NodePorts of each commit, with the endpoints that the
// traffic policy allows. A change of another Service causes no call.
func TestLocalhostPorts(t *testing.T) {
	rules := tabletest.Rules()
	rules.NodePortAddresses = ruleset.NodePortAddresses{CIDRs: tabletest.Prefixes("127.0.0.0/8")}
	rules.LocalhostNodePorts = true
	recorded := &recordedPorts{ports: make(map[uint16]localhost.NodePort)}
	sink := newFollowed(t, rules, &localhostPorts{server: recorded})
	sink.SetNode(tabletest.Node())
	set := func(name string, change func(*cluster.Service)) {
		svc := tabletest.Service(name, "", change)
		sink.SetService(svc)
		for i, node := range []string{"node1", "node2"} {
			e := tabletest.Endpoint(fmt.Sprintf("10.244.%d.1", i+1))
			e.Node = node
			tabletest.SetEndpoint(sink, svc.Name, e)
		}
	}
	nodePort := func(port uint16) func(*cluster.Service) {
		return func(s *cluster.Service) { s.Ports[0].NodePort = port }
	}
	expect := func(when string, calls int, want ...string) {
		t.Helper()
		tabletest.Sync(t, sink)
		if got := recorded.text(); got != strings.Join(want, "\n") || recorded.calls != calls {
			t.Errorf("%s: got %d calls and\n%s\nwant %d and\n%s", when, recorded.calls, got, calls,
				strings.Join(want, "\n"))
		}
		recorded.calls = 0
	}
	const both = "[10.244.1.1 10.244.2.1]"
	set("a", func(s *cluster.Service) {
		s.Ports[0].NodePort, s.AffinityTimeout = 30001, time.Hour
	})
	set("b", func(s *cluster.Service) {
		s.Ports[0].NodePort, s.ExternalPolicy = 30002, cluster.PolicyLocal
	})
	set("udp", func(s *cluster.Service) {
		s.Ports[0].NodePort, s.Ports[0].Protocol = 30003, cluster.UDP
	})
	a, b := "30001 ns/a:http "+both+" 1h0m0s", "30002 ns/b:http [10.244.1.1] 0s"
	expect("first sync", 2, a, b)
	set("other", func(s *cluster.Service) { s.ClusterIPs = tabletest.Addrs("10.96.0.9") })
	expect("another Service", 0, a, b)
	set("b", nodePort(30001))
	set("a", nodePort(30002))
	expect("swapped", 2, "30001 ns/b:http "+both+" 0s", "30002 ns/a:http "+both+" 0s")
	sink.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "a"})
	expect("deleted", 1, "30001 ns/b:http "+both+" 0s")
	sink.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "b"})
	set("c", nodePort(30004))
	rewrite(t, sink)
	expect("another Service in a rewrite", 2, "30004 ns/c:http "+both+" 0s")
	c := cluster.ServiceName{Namespace: "ns", Name: "c"}
	tabletest.DeleteEndpoint(sink, c, tabletest.Endpoint("10.244.1.1").EndpointKey)
	expect("removed endpoint", 1, "30004 ns/c:http [10.244.2.1] 0s")
	drained := tabletest.Endpoint("10.244.2.1")
	drained.Weight = cluster.WeightOf(0)
	tabletest.SetEndpoint(sink, c, drained)
	expect("weight 0", 1, "30004 ns/c:http [] 0s")
}
