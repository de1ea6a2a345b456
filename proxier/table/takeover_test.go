package table_test

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// While the table is rewritten, every new connection from an allowed source is
// translated.
func TestRewriteLosesNoConnection(t *testing.T) {
	t.Parallel()
	tabletest.NewNode(t)
	e := newEngine(t)
	guarded := tabletest.Service("guarded", "10.96.200.1", func(s *cluster.Service) {
		s.Ports[0].Protocol = cluster.UDP
		s.LoadBalancerIPs = tabletest.Addrs("192.0.2.1")
		s.SourceRanges = tabletest.Prefixes("172.30.0.0/24")
	})
	endpoint := tabletest.Endpoint("10.244.0.1")
	endpoint.Ports[0].Protocol = cluster.UDP
	restart := func() {
		must.NoError(t, e.start())
		e.sinks.SetService(guarded)
		tabletest.SetEndpoint(e.sinks, guarded.Name, endpoint)
		tabletest.PassNumbered(e.sinks, 300, tabletest.ManyEndpoints) // a commit takes longer
		tabletest.Sync(t, e.tables[0])
	}
	restart()
	packets := endPackets(t, "10.244.0.1", "192.0.2.1")
	commits, stop := 0, sendUDP(t, tabletest.Node().IPs[0], netip.MustParseAddrPort("192.0.2.1:80"))
	for range rounds(15) {
		restart() // the first sync of a process is a rewrite
		commits += e.tables[0].Stats().Transactions
	}
	sent, translated, lost := stop(), packets("translated"), packets("untranslated")
	if lost > mayLose(t, commits) || translated+lost != sent {
		t.Errorf("%d of %d packets were translated and %d were not, in %d commits", translated, sent, lost, commits)
	}
	e.checkWanted(t)
}

// A transaction can take effect between two lookups for one packet, of which
// the first one finds the old number of endpoints. Then the packet still gets
// an endpoint.
func TestShrinkingServiceLosesNoConnection(t *testing.T) {
	t.Parallel()
	tabletest.NewNode(t)
	e := newEngine(t)
	e.limits.Burst = time.Hour
	must.NoError(t, e.start())
	shrinking := tabletest.Service("shrinking", "10.96.200.1", func(s *cluster.Service) {
		s.Ports[0].Protocol = cluster.UDP
		s.ExternalIPs = tabletest.Addrs("192.0.2.1")
	})
	e.sinks.SetService(shrinking)
	scale := func(n int) {
		var endpoints []*cluster.Endpoint
		for i := range n {
			endpoint := tabletest.Endpoint(fmt.Sprintf("10.244.9.%d", i+1))
			endpoint.Ports[0].Protocol = cluster.UDP
			endpoints = append(endpoints, endpoint)
		}
		e.sinks.SetEndpoints(shrinking.Name, endpoints[0].Source, endpoints)
		tabletest.Sync(t, e.tables[0])
	}
	const most = 10
	scale(most)
	packets := endPackets(t, "10.244.9.0/24", "192.0.2.1")
	from := tabletest.Node().IPs[0]
	toCluster := sendUDP(t, from, netip.MustParseAddrPort("10.96.200.1:80"))
	toExternal := sendUDP(t, from, netip.MustParseAddrPort("192.0.2.1:80"))
	commits := e.tables[0].Stats().Transactions
	for range rounds(600) {
		scale(1)
		scale(most)
	}
	commits = e.tables[0].Stats().Transactions - commits
	sent, translated := toCluster()+toExternal(), packets("translated")
	if lost := sent - translated; lost > mayLose(t, commits) {
		t.Errorf("%d of %d packets were rejected or not translated, in %d commits", lost, sent, commits)
	}
}

// mayLose returns how many packets the kernel may lose during commits. Before
// Linux 6.17, a lookup that begins in one generation and ends in the next can
// find neither the old row nor the new one. Each commit may lose the packet
// that is in the chains at that time.
func mayLose(t *testing.T, commits int) int {
	t.Helper()
	if nstest.KernelAtLeast(t, 6, 17) {
		return 0
	}
	return commits
}

// endPackets makes the packets end that have the address of an endpoint, or an
// address that was not translated, so that each of them begins a connection.
// The returned function returns the number of either kind.
func endPackets(t *testing.T, endpoints, vip string) func(counter string) int {
	t.Helper()
	tabletest.LoadNFT(t, `table ip end {
		counter translated { }
		counter untranslated { }
		chain output {
			type filter hook output priority 0;
			ip daddr `+endpoints+` counter name translated drop
			ip daddr `+vip+` counter name untranslated drop
		}
	}`)
	conn := nstest.Open(t)
	return func(counter string) int {
		found, ok, err := conn.FindCounter(&nft.Table{Family: nft.IPv4, Name: "end"}, counter)
		if err != nil || !ok {
			t.Fatalf("counter %s: %v", counter, err)
		}
		return int(found.Packets)
	}
}

// sendUDP sends packets to an address until the returned function is called,
// which returns their number.
func sendUDP(t *testing.T, from netip.Addr, to netip.AddrPort) (stop func() int) {
	t.Helper()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: from.AsSlice()}, net.UDPAddrFromAddrPort(to))
	must.NoError(t, err)
	var stopped atomic.Bool
	sent := make(chan int, 1)
	go func() {
		n := 0
		for ; !stopped.Load(); n++ {
			_, _ = conn.Write([]byte("x")) // the rule that drops the packet causes an error
		}
		sent <- n
	}()
	return func() int {
		stopped.Store(true)
		defer conn.Close()
		return <-sent
	}
}
