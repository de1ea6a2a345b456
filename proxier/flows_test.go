package proxier

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
)

// cleanerCalls records what a Backend passes to its flow cleaner.
type cleanerCalls []string

func (c *cleanerCalls) Update(changes ...conntrack.Change) { c.add("", changes) }

func (c *cleanerCalls) Replace(family conntrack.Family, changes ...conntrack.Change) {
	*c = append(*c, fmt.Sprintf("replace %v", family))
	c.add("  ", changes)
}

func (c *cleanerCalls) SetNodeAddrs(family conntrack.Family, addrs []netip.Addr) {
	*c = append(*c, fmt.Sprintf("node addresses %v %v", family, addrs))
}

func (c *cleanerCalls) add(indent string, changes []conntrack.Change) {
	for _, change := range changes {
		state := fmt.Sprint(change.Endpoints)
		if change.Gone {
			state = "gone"
		}
		*c = append(*c, fmt.Sprintf("%s%s %s", indent, change.Frontend, state))
	}
}

// udpService returns a Service with a UDP port and a TCP port.
func udpService(change func(*Service)) *Service {
	return simpleService("dns", "10.96.0.53", func(s *Service) {
		s.Ports = []ServicePort{{Name: "dns", Protocol: UDP, Port: 53}, {Name: "dns-tcp", Protocol: TCP, Port: 53}}
		if change != nil {
			change(s)
		}
	})
}

func udpEndpoint(last int, ready, serving bool) *Endpoint {
	return &Endpoint{
		EndpointKey: EndpointKey{"s", netip.AddrFrom4([4]byte{10, 244, 0, byte(last)})},
		Ready:       ready, Serving: serving, Terminating: !ready,
		Ports: []EndpointPort{{"dns", UDP, 53}, {"dns-tcp", TCP, 53}},
	}
}

// The flow cleaner gets each committed change of a UDP service port.
func TestStaleFlows(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	var got cleanerCalls
	b.flows = &got
	step := func(name string, want ...string) {
		t.Helper()
		got = nil
		mustSync(t, b)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	svc := udpService(nil)
	b.SetService(svc)
	step("new, without endpoints", "node addresses IPv4 [0.0.0.0]", "replace IPv4", "  10.96.0.53:53 []")
	b.SetEndpoint(svc.Name, udpEndpoint(1, true, true))
	step("the first endpoint", "10.96.0.53:53 [10.244.0.1:53]")
	b.SetEndpoint(svc.Name, udpEndpoint(2, true, true))
	step("one more", "10.96.0.53:53 [10.244.0.1:53 10.244.0.2:53]")
	b.SetEndpoint(svc.Name, udpEndpoint(1, false, true))
	step("one terminates, and still serves", "10.96.0.53:53 [10.244.0.1:53 10.244.0.2:53]")
	b.SetEndpoint(svc.Name, udpEndpoint(1, false, false))
	step("it no longer serves", "10.96.0.53:53 [10.244.0.2:53]")
	b.SetService(udpService(func(s *Service) {
		s.ExternalIPs, s.Ports[0].NodePort = []netip.Addr{addr("192.0.2.1")}, 30053
	}))
	step("more addresses",
		"10.96.0.53:53 [10.244.0.2:53]", "192.0.2.1:53 [10.244.0.2:53]", "0.0.0.0:30053 [10.244.0.2:53]")
	b.doubt("test")
	step("a rewrite", "replace IPv4",
		"  10.96.0.53:53 [10.244.0.2:53]", "  192.0.2.1:53 [10.244.0.2:53]", "  0.0.0.0:30053 [10.244.0.2:53]")
	b.SetService(udpService(nil))
	step("fewer addresses", "192.0.2.1:53 gone", "0.0.0.0:30053 gone", "10.96.0.53:53 [10.244.0.2:53]")
	other := simpleService("other", "10.96.0.54", func(s *Service) {
		s.Ports = []ServicePort{{Name: "dns", Protocol: UDP, Port: 53}}
		s.ExternalIPs = []netip.Addr{addr("10.96.0.53")}
	})
	b.SetService(other)
	step("another service, with one address of the first", "10.96.0.54:53 []")
	b.DeleteService(svc.Name)
	step("the address moves to it", "10.96.0.53:53 gone", "10.96.0.54:53 []", "10.96.0.53:53 []")
	b.DeleteService(other.Name)
	step("the services are gone", "10.96.0.54:53 gone", "10.96.0.53:53 gone")
	web := simpleService("web", "10.96.0.80", nil)
	b.SetService(web)
	b.SetEndpoint(web.Name, simpleEndpoint("10.244.0.9"))
	step("TCP only")
}

// Frontends that are gone after a Reset are cleaned, too: the replacement does
// not contain them.
func TestStaleFlowsAfterReset(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	var got cleanerCalls
	b.flows = &got
	b.SetService(udpService(nil))
	mustSync(t, b)
	b.Reset()
	got = nil
	mustSync(t, b)
	if want := []string{"replace IPv4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The flow cleaner gets the addresses that NodePorts listen on.
func TestStaleFlowsOfNodePorts(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, &Config{NodeName: "node1"}, nft.IPv4)
	var got cleanerCalls
	b.flows = &got
	b.SetNode(sampleNode())
	b.SetService(udpService(func(s *Service) { s.Ports[0].NodePort = 30053 }))
	mustSync(t, b)
	want := []string{
		"node addresses IPv4 [172.30.0.11]", "replace IPv4", "  10.96.0.53:53 []", "  0.0.0.0:30053 []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	moved := sampleNode()
	moved.IPs = []netip.Addr{addr("172.30.0.12")}
	got = nil
	b.SetNode(moved)
	mustSync(t, b)
	want = []string{"node addresses IPv4 [172.30.0.12]", "10.96.0.53:53 []", "0.0.0.0:30053 []"}
	if !slices.Equal(got, want) {
		t.Errorf("after the node got another address: %q, want %q", got, want)
	}
}

// The memory for 500 NodePorts on 500 addresses is for their sum, not for the
// 250,000 pairs.
func TestStartMemory(t *testing.T) {
	b, changes := startBackend(t, 500, 500, 10)
	cleaner, err := conntrack.NewCleaner(conntrack.CleanerConfig{Conn: new(conntrack.Conn)})
	if err != nil {
		t.Fatal(err)
	}
	b.flows = cleaner
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.cleanFlows(&transaction{changes: changes, whole: true}, nil)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes are allocated, want at most 1 MiB", n)
	}
}

// startBackend returns a backend with UDP Services that have a NodePort each,
// on a number of node addresses, and the changes of its first transaction.
func startBackend(t testing.TB, services, nodeAddrs, endpoints int) (*Backend, []change) {
	t.Helper()
	nodePorts, err := ParseNodePortAddresses([]string{"172.30.0.0/16"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBackend(&Config{NodeName: "node1", NodePortAddresses: nodePorts}, nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	node := sampleNode()
	for i := range nodeAddrs {
		node.NodePortIPs = append(node.NodePortIPs, netip.AddrFrom4([4]byte{172, 30, byte(i >> 8), byte(i)}))
	}
	b.SetNode(node)
	for i := range services {
		svc := benchService(i)
		svc.Ports = []ServicePort{{Name: "dns", Protocol: UDP, Port: 53, NodePort: uint16(30000 + i)}}
		b.SetService(svc)
		for e := range endpoints {
			endpoint := benchEndpoint(i, e)
			endpoint.Ports = []EndpointPort{{Name: "dns", Protocol: UDP, Port: 53}}
			b.SetEndpoint(svc.Name, endpoint)
		}
	}
	b.have.nodePortAddrs = b.nodePortDestinations(b.programConfig())
	return b, b.changes()
}

// BenchmarkStart500x500x10 looks for stale flows after a start with 500 UDP
// NodePorts of 10 endpoints each on 500 node addresses.
func BenchmarkStart500x500x10(b *testing.B) {
	newNamespace(b)
	runNFT(b, "table ip track { chain output { type filter hook output priority 0; ct state new accept; }; }", "-f", "-")
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
	backend, changes := startBackend(b, 500, 500, 10)
	b.ReportAllocs()
	for b.Loop() {
		conn, err := conntrack.Open()
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan conntrack.Result, 10)
		cleaner, err := conntrack.NewCleaner(conntrack.CleanerConfig{
			Conn: conn, Report: func(r conntrack.Result) { done <- r },
		})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		client.Write([]byte("keeps the flow alive"))
		backend.flows = cleaner
		backend.cleanFlows(&transaction{changes: changes, whole: true}, nil)
		var running sync.WaitGroup
		running.Go(func() { cleaner.Run(ctx) })
		if r := <-done; r.Err != nil || r.Flows == 0 {
			b.Fatalf("%+v", r)
		}
		cancel()
		running.Wait()
		conn.Close()
	}
}

// BenchmarkAddEndpoint10000 passes two changes of a UDP service port with
// 10,000 endpoints to the flow cleaner: one endpoint more, and one less.
func BenchmarkAddEndpoint10000(b *testing.B) {
	backend, changes := startBackend(b, 1, 1, 10_000)
	cleaner, err := conntrack.NewCleaner(conntrack.CleanerConfig{Conn: new(conntrack.Conn)})
	if err != nil {
		b.Fatal(err)
	}
	backend.flows = cleaner
	backend.cleanFlows(&transaction{changes: changes, whole: true}, nil)
	before := changes[0].next
	after := *before
	after.serving = append(slices.Clone(before.serving), netip.MustParseAddrPort("192.0.2.1:53"))
	c := changes[0]
	for b.Loop() {
		c.port.committed, c.next = before, &after
		backend.cleanFlows(&transaction{changes: []change{c}}, backend.have.nodePortAddrs)
		c.port.committed, c.next = &after, before // one less
		backend.cleanFlows(&transaction{changes: []change{c}}, backend.have.nodePortAddrs)
	}
}
