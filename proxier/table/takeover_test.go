package table_test

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// While the table is rewritten, every new connection from an allowed source is
// translated. Before Linux 6.17, a lookup that begins in one generation and
// ends in the next can find neither the old row nor the new one, so a commit
// may lose the packet that is in the chains at that time.
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
		if err := e.start(); err != nil {
			t.Fatal(err)
		}
		e.sinks.SetService(guarded)
		tabletest.SetEndpoint(e.sinks, guarded.Name, endpoint)
		tabletest.PassNumbered(e.sinks, 300, tabletest.ManyEndpoints) // a commit takes longer
		tabletest.Sync(t, e.tables[0])
	}
	restart()
	// All packets end here, so that each one begins a connection.
	tabletest.LoadNFT(t, `table ip end {
		counter translated { }
		counter lost { }
		chain output {
			type filter hook output priority 0;
			ip daddr 10.244.0.1 counter name translated drop
			ip daddr 192.0.2.1 counter name lost drop
		}
	}`)
	packets := func(counter string) int {
		listing := tabletest.NFT(t, "", "list", "counter", "ip", "end", counter)
		n, err := strconv.Atoi(regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(listing)[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	commits, stop := 0, sendUDP(t, tabletest.Node().IPs[0], netip.MustParseAddrPort("192.0.2.1:80"))
	for range rounds(15) {
		restart() // the first sync of a process is a rewrite
		commits += e.tables[0].Stats().Transactions
	}
	sent, translated, lost := stop(), packets("translated"), packets("lost")
	allowed := 0
	if !nstest.KernelAtLeast(t, 6, 17) {
		allowed = commits
	}
	if lost > allowed || translated+lost != sent {
		t.Errorf("%d of %d packets were translated and %d were not, want at most %d", translated, sent, lost, allowed)
	}
	e.checkWanted(t)
}

// sendUDP sends packets to an address until the returned function is called,
// which returns their number.
func sendUDP(t *testing.T, from netip.Addr, to netip.AddrPort) (stop func() int) {
	t.Helper()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: from.AsSlice()}, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
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
