package follow

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// cleanerCalls records the calls of a flowCleaner.
type cleanerCalls []string

func (c *cleanerCalls) Update(changes ...conntrack.FrontendChange) {
	for _, change := range changes {
		state := fmt.Sprint(change.Endpoints)
		if change.Gone {
			state = "removed"
		}
		if change.Check {
			state += " check"
		}
		*c = append(*c, fmt.Sprintf("%s %s", change.Frontend, state))
	}
}

func (c *cleanerCalls) Miss(family nft.Family, frontends []netip.AddrPort) {
	*c = append(*c, fmt.Sprintf("missed %s %v", family.Name(), frontends))
}

func (c *cleanerCalls) SetNodeAddrs(family nft.Family, addrs []netip.Addr) {
	*c = append(*c, fmt.Sprintf("node addresses %s %v", family.Name(), addrs))
}

func (c *cleanerCalls) Remove(...conntrack.Removal) {}

func (c *cleanerCalls) Run(context.Context) error { return nil }

// udpService returns a Service with a UDP port and a TCP port.
func udpService(change func(*cluster.Service)) *cluster.Service {
	return tabletest.Service("dns", "10.96.0.53", func(s *cluster.Service) {
		s.Ports = []cluster.ServicePort{
			{Name: "dns", Protocol: cluster.UDP, Port: 53}, {Name: "dns-tcp", Protocol: cluster.TCP, Port: 53},
		}
		if change != nil {
			change(s)
		}
	})
}

// udpEndpoint returns an endpoint of udpService. It is terminating if it is
// not ready.
func udpEndpoint(last int, ready, serving bool) *cluster.Endpoint {
	return &cluster.Endpoint{
		EndpointKey: cluster.EndpointKey{Source: "s", Addr: netip.AddrFrom4([4]byte{10, 244, 0, byte(last)})},
		Ready:       ready, Serving: serving, Terminating: !ready,
		Ports: []cluster.EndpointPort{
			{Name: "dns", Protocol: cluster.UDP, Port: 53}, {Name: "dns-tcp", Protocol: cluster.TCP, Port: 53},
		},
	}
}

// The flow cleaner receives each committed change of a UDP service port.
func TestStaleFlows(t *testing.T) {
	var got cleanerCalls
	sink := newFollowed(t, tabletest.Rules(), &staleFlows{cleaning: cleaning{cleaner: &got}})
	step := func(name string, want ...string) {
		t.Helper()
		tabletest.Sync(t, sink)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		got = nil
	}
	svc := udpService(nil)
	sink.SetService(svc)
	step("a Service without endpoints", "node addresses IPv4 [0.0.0.0]", "10.96.0.53:53 [] check",
		"missed IPv4 [10.96.0.53:53]")
	tabletest.SetEndpoint(sink, svc.Name, udpEndpoint(1, true, true))
	step("the first endpoint", "10.96.0.53:53 [10.244.0.1:53] check")
	tabletest.SetEndpoint(sink, svc.Name, udpEndpoint(2, true, true))
	step("a second endpoint", "10.96.0.53:53 [10.244.0.1:53 10.244.0.2:53]")
	tabletest.SetEndpoint(sink, svc.Name, udpEndpoint(1, false, true))
	step("one endpoint is terminating and serving", "10.96.0.53:53 [10.244.0.1:53 10.244.0.2:53]")
	tabletest.SetEndpoint(sink, svc.Name, udpEndpoint(1, false, false))
	step("it no longer serves", "10.96.0.53:53 [10.244.0.2:53]")
	sink.SetService(udpService(func(s *cluster.Service) {
		s.ExternalIPs, s.Ports[0].NodePort = []netip.Addr{netip.MustParseAddr("192.0.2.1")}, 30053
	}))
	step("more frontends",
		"10.96.0.53:53 [10.244.0.2:53]", "192.0.2.1:53 [10.244.0.2:53]", "0.0.0.0:30053 [10.244.0.2:53]")
	rewrite(t, sink)
	step("a rewrite", "10.96.0.53:53 [10.244.0.2:53] check", "192.0.2.1:53 [10.244.0.2:53] check",
		"0.0.0.0:30053 [10.244.0.2:53] check",
		"missed IPv4 [10.96.0.53:53 192.0.2.1:53]")
	sink.SetService(udpService(nil))
	step("fewer frontends", "192.0.2.1:53 removed", "0.0.0.0:30053 removed", "10.96.0.53:53 [10.244.0.2:53]")
	other := tabletest.Service("other", "10.96.0.54", func(s *cluster.Service) {
		s.Ports = []cluster.ServicePort{{Name: "dns", Protocol: cluster.UDP, Port: 53}}
		s.ExternalIPs = []netip.Addr{netip.MustParseAddr("10.96.0.53")}
	})
	sink.SetService(other)
	step("another Service claims a frontend of the first", "10.96.0.54:53 []")
	sink.DeleteService(svc.Name)
	step("the frontend moves to it", "10.96.0.53:53 removed", "10.96.0.54:53 []", "10.96.0.53:53 []")
	sink.DeleteService(other.Name)
	step("both Services are deleted", "10.96.0.54:53 removed", "10.96.0.53:53 removed")
	web := tabletest.Service("web", "10.96.0.80", nil)
	sink.SetService(web)
	tabletest.SetEndpoint(sink, web.Name, tabletest.Endpoint("10.244.0.9"))
	step("a Service with TCP only")
}

// A rewrite reports frontends that were removed since the commit before.
func TestStaleFlowsOfRewrite(t *testing.T) {
	var got cleanerCalls
	sink := newFollowed(t, tabletest.Rules(), &staleFlows{cleaning: cleaning{cleaner: &got}})
	sink.SetService(udpService(nil))
	tabletest.Sync(t, sink)
	sink.DeleteService(udpService(nil).Name)
	got = nil
	rewrite(t, sink)
	if want := []string{"10.96.0.53:53 removed", "missed IPv4 []"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The flow cleaner receives the addresses on which NodePorts listen.
func TestStaleFlowsOfNodePorts(t *testing.T) {
	var got cleanerCalls
	sink := newFollowed(t, ruleset.Config{}, &staleFlows{cleaning: cleaning{cleaner: &got}})
	sink.SetNode(tabletest.Node())
	sink.SetService(udpService(func(s *cluster.Service) { s.Ports[0].NodePort = 30053 }))
	tabletest.Sync(t, sink)
	want := []string{
		"node addresses IPv4 [172.30.0.11]", "10.96.0.53:53 [] check", "0.0.0.0:30053 [] check",
		"missed IPv4 [10.96.0.53:53]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	moved := tabletest.Node()
	moved.IPs = []netip.Addr{netip.MustParseAddr("172.30.0.12")}
	got = nil
	sink.SetNode(moved)
	tabletest.Sync(t, sink)
	want = []string{"node addresses IPv4 [172.30.0.12]", "10.96.0.53:53 []", "0.0.0.0:30053 []"}
	if !slices.Equal(got, want) {
		t.Errorf("another address of the node: got %q, want %q", got, want)
	}
}

// The memory for 500 NodePorts on 500 addresses is proportional to their sum,
// and not to the 250,000 pairs.
func TestStartMemory(t *testing.T) {
	start := startCommit(t, 500, 500, 10)
	cleaner := new(conntrack.Conn).NewCleaner(conntrack.CleanerConfig{})
	flows := &staleFlows{cleaning: cleaning{cleaner: cleaner}}
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		b.Fatal(err)
	}
	client, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	conn, err := conntrack.Open()
	if err != nil {
		b.Fatal(err)
	}
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
	flows := &staleFlows{cleaning: cleaning{cleaner: cleaner}}
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

// BenchmarkAddEndpoint10000 passes two changes of a UDP service port with
// 10,000 endpoints to the flow cleaner: an endpoint is added, and removed.
func BenchmarkAddEndpoint10000(b *testing.B) {
	start := startCommit(b, 1, 1, 10_000)
	cleaner := new(conntrack.Conn).NewCleaner(conntrack.CleanerConfig{})
	flows := &staleFlows{cleaning: cleaning{cleaner: cleaner}}
	flows.committed(start)
	before := start.Changes[0].After
	after := *before
	after.Serving = append(slices.Clone(before.Serving), netip.MustParseAddrPort("192.0.2.1:53"))
	for b.Loop() {
		flows.committed(&table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{Before: before, After: &after}}})
		flows.committed(&table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{Before: &after, After: before}}})
	}
}
