package lab_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

func TestOpenConnection(t *testing.T) {
	l := labtest.New(t)
	pod := labtest.AddPod(t, l.Node1, "pod")
	for _, addr := range pod.Addrs() {
		server, err := pod.ServeTCP(port)
		if err != nil {
			t.Fatal(err)
		}
		conn, result := lab.Open(t.Context(), l.Client, "tcp", netip.AddrPortFrom(addr, port), lab.ProbeOptions{})
		if conn == nil {
			t.Fatal(result)
		}
		defer conn.Close()
		for range 3 {
			if got := conn.Ask(t.Context()); got.Outcome != lab.Answered || got.Answer != result.Answer {
				t.Errorf("open connection: got %v, want %v", got, result)
			}
		}
		server.Close()
		if got := conn.Ask(t.Context()); got.Outcome == lab.Answered {
			t.Errorf("connection to a closed server: got %v, want an error", got)
		}
		expect(t, lab.Refused, l.Client, "tcp", netip.AddrPortFrom(addr, port))
	}
}

func TestFlowFollowsItsAddress(t *testing.T) {
	l := labtest.New(t)
	old := labtest.AddPod(t, l.Node1, "old")
	labtest.Serve(t, port, old.Namespace)
	var flows []*lab.Conn
	for _, addr := range old.Addrs() {
		flow, result := lab.Open(t.Context(), l.Client, "udp", netip.AddrPortFrom(addr, port), lab.ProbeOptions{})
		if flow == nil || result.Answer.Server != "old" {
			t.Fatal(result)
		}
		defer flow.Close()
		flows = append(flows, flow)
	}
	if err := old.Remove(); err != nil {
		t.Fatal(err)
	}
	next := labtest.AddPodWith(t, l.Node1, lab.PodConfig{Name: "next", IPv4: old.IPv4, IPv6: old.IPv6})
	for _, flow := range flows {
		if got := flow.Ask(t.Context()); got.Outcome != lab.Refused {
			t.Errorf("flow to a closed port: got %v, want refused", got)
		}
	}
	labtest.Serve(t, port, next.Namespace)
	for _, flow := range flows {
		if got := flow.Ask(t.Context()); got.Outcome != lab.Answered || got.Answer.Server != "next" {
			t.Errorf("flow to another pod with the same address: got %v", got)
		}
	}
}

// A source port can be reused immediately.
func TestFixedSource(t *testing.T) {
	l := labtest.New(t)
	labtest.Serve(t, port, l.Node1.Namespace, l.Node2.Namespace)
	for i, source := range l.Client.Addrs() {
		options := lab.ProbeOptions{Local: netip.AddrPortFrom(source, 40000)}
		for range 3 {
			for _, node := range l.Nodes() {
				for _, protocol := range append(protocols(), "sctp") {
					got := lab.Probe(t.Context(), l.Client, protocol, netip.AddrPortFrom(node.Addrs()[i], port),
						options)
					if got.Outcome != lab.Answered || got.Answer.Source != options.Local {
						t.Errorf("%s from %s: got %v", protocol, options.Local, got)
					}
				}
			}
		}
	}
	anyAddr := lab.ProbeOptions{Local: netip.AddrPortFrom(netip.Addr{}, 40001)}
	got := lab.Probe(t.Context(), l.Client, "udp", netip.AddrPortFrom(l.Node1.IPv6, port), anyAddr)
	if want := netip.AddrPortFrom(l.Client.IPv6, 40001); got.Answer.Source != want {
		t.Errorf("port 40001 of any address: got %v, want source %s", got, want)
	}
}

// One source port can have flows to several destinations at the same time.
func TestFlowsFromOneSource(t *testing.T) {
	l := labtest.New(t)
	labtest.Serve(t, port, l.Node1.Namespace, l.Node2.Namespace)
	options := lab.ProbeOptions{Local: netip.AddrPortFrom(l.Client.IPv4, 40000)}
	for _, protocol := range append(protocols(), "sctp") {
		var conns []*lab.Conn
		for _, node := range l.Nodes() {
			conn, result := lab.Open(t.Context(), l.Client, protocol, netip.AddrPortFrom(node.IPv4, port), options)
			if conn == nil {
				t.Fatalf("%s to %s: %v", protocol, node.Name, result)
			}
			defer conn.Close()
			conns = append(conns, conn)
		}
		for i, node := range l.Nodes() {
			if got := conns[i].Ask(t.Context()); got.Answer.Server != node.Name || got.Answer.Source != options.Local {
				t.Errorf("%s to %s: got %v", protocol, node.Name, got)
			}
		}
	}
}

// A first packet is lost only if it did not arrive, and not if its answer is
// late.
func TestLost(t *testing.T) {
	for name, tt := range map[string]struct {
		flags string // of each second packet that does not pass node1
		want  uint32
	}{
		"no loss":      {"fin | ack", 0},
		"first packet": {"syn", 1},
		"first answer": {"syn | ack", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := labtest.New(t)
			pod := labtest.AddPod(t, l.Node1, "pod")
			labtest.Serve(t, port, pod.Namespace)
			labtest.Run(t, l.Node1.Namespace, "nft", fmt.Sprintf(`
				add table inet lossy
				add chain inet lossy forward { type filter hook forward priority 0; }
				add rule inet lossy forward tcp flags & (fin | syn | ack) == %s numgen inc mod 2 0 drop`, tt.flags))
			for _, addr := range pod.Addrs() {
				conn, result := lab.Open(t.Context(), l.Client, "tcp", netip.AddrPortFrom(addr, port),
					lab.ProbeOptions{})
				if conn == nil {
					t.Fatal(result)
				}
				defer conn.Close()
				if n, err := conn.Lost(); n != tt.want || err != nil {
					t.Errorf("%v: got %d lost packets and error %v, want %d", addr, n, err, tt.want)
				}
			}
		})
	}
}

// Attempts without a source port begin flows from different ports.
func TestFlowsHaveDifferentPorts(t *testing.T) {
	l := labtest.New(t)
	pod := labtest.AddPod(t, l.Node1, "pod")
	labtest.Serve(t, port, pod.Namespace)
	for _, network := range []string{"udp", "sctp"} {
		seen := map[uint16]bool{}
		for range 400 { // random ports would meet
			result := lab.Probe(t.Context(), l.Client, network, netip.AddrPortFrom(pod.IPv4, port), lab.ProbeOptions{})
			if from := result.Answer.Source.Port(); result.Outcome != lab.Answered || seen[from] {
				t.Fatalf("%s: got %v, want an answer at an unused port", network, result)
			}
			seen[result.Answer.Source.Port()] = true
		}
	}
}
