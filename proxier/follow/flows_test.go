package follow

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// The memory for 500 NodePorts on 500 addresses is proportional to their sum,
// and not to the 250,000 pairs.
func TestStartMemory(t *testing.T) {
	start := startCommit(t, 500, 500, 10)
	cleaner := new(conntrack.Conn).NewCleaner(conntrack.CleanerConfig{})
	flows := &staleFlows{cleaning: cleaning{cleaner: cleaner}, protocols: []cluster.Protocol{cluster.UDP}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	flows.committed(start)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("got %d bytes, want at most 1 MiB", n)
	}
}

// startCommit returns the first commit of a table with UDP Services that have
// a NodePort each, on a number of node addresses.
func startCommit(t testing.TB, services, nodeAddrs, endpoints int) *table.Commit {
	t.Helper()
	rules, err := ruleset.New(ruleset.Config{
		NodePortAddresses: ruleset.NodePortAddresses{CIDRs: tabletest.Prefixes("172.30.0.0/16")},
	}, nft.IPv4)
	must.NoError(t, err)
	node := tabletest.Node()
	for i := range nodeAddrs {
		node.NodePortIPs = append(node.NodePortIPs, netip.AddrFrom4([4]byte{172, 30, byte(i >> 8), byte(i)}))
	}
	c := &table.Commit{
		Family: nft.IPv4, Whole: true, NodePortAddrs: rules.MakeProgram(node).NodePortAddrs, NodePortAddrsChanged: true,
	}
	for i := range services {
		svc := tabletest.NumberedService(i)
		svc.Ports = []cluster.ServicePort{{Name: "dns", Protocol: cluster.UDP, Port: 53, NodePort: uint16(30000 + i)}}
		in := &ruleset.PlanInput{
			Node: node, Service: svc, Port: svc.Ports[0], Frontends: ruleset.FrontendsOf(nft.IPv4, svc, svc.Ports[0]),
		}
		for e := range endpoints {
			endpoint := tabletest.NumberedEndpoint(i, e)
			endpoint.Ports = []cluster.EndpointPort{{Name: "dns", Protocol: cluster.UDP, Port: 53}}
			in.Endpoints = append(in.Endpoints, endpoint)
		}
		plan, err := rules.MakePlan(in)
		must.NoError(t, err)
		c.Changes = append(c.Changes, table.PortChange{After: plan})
	}
	return c
}

// BenchmarkStaleFlows searches for stale flows after a start with UDP NodePorts
// with 10 endpoints each on 500 node addresses, and after a change of one.
func BenchmarkStaleFlows(b *testing.B) {
	tabletest.NewNamespace(b)
	tabletest.LoadNFT(b,
		"table ip track { chain output { type filter hook output priority 0; ct state new accept; }; }")
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	must.NoError(b, err)
	client, err := net.Dial("udp", "127.0.0.1:9")
	must.NoError(b, err)
	defer client.Close()
	conn, err := conntrack.Open()
	must.NoError(b, err)
	defer conn.Close()
	for _, nodePorts := range []int{125, 500} {
		start := startCommit(b, nodePorts, 500, 10)
		before := start.Changes[0].After
		after := *before
		after.Serving = before.Serving[1:]
		change := &table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{Before: before, After: &after}}}
		for name, commits := range map[string][]*table.Commit{"start": {start}, "change": {start, change}} {
			b.Run(fmt.Sprint(nodePorts, "/", name), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					cleanAfter(b, conn, client, commits)
				}
			})
		}
	}
}

// cleanAfter measures the search for stale flows that follows the last of some
// commits.
func cleanAfter(b *testing.B, conn *conntrack.Conn, client net.Conn, commits []*table.Commit) {
	b.StopTimer()
	done := make(chan conntrack.Result, 10)
	cleaner := conn.NewCleaner(conntrack.CleanerConfig{Report: func(r conntrack.Result) { done <- r }})
	ctx, cancel := context.WithCancel(b.Context())
	flows := &staleFlows{cleaning: cleaning{cleaner: cleaner}, protocols: []cluster.Protocol{cluster.UDP}}
	var running sync.WaitGroup
	running.Go(func() { cleaner.Run(ctx) })
	for i, commit := range commits {
		client.Write([]byte("renew the flow"))
		if i == len(commits)-1 {
			b.StartTimer()
		}
		flows.committed(commit)
		if r := <-done; r.Err != nil || r.Flows == 0 {
			b.Fatalf("%+v", r)
		}
	}
	b.StopTimer()
	cancel()
	running.Wait()
	b.StartTimer()
}
