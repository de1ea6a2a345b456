package lab_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// A source port can belong to any address.
func TestFixedSource(t *testing.T) {
	l := labtest.New(t)
	labtest.Serve(t, port, l.Node1.Namespace)
	anyAddr := lab.ProbeOptions{Local: netip.AddrPortFrom(netip.Addr{}, 40001)}
	got := lab.Probe(t.Context(), l.Client, "udp", netip.AddrPortFrom(l.Node1.IPv6, port), anyAddr)
	if want := netip.AddrPortFrom(l.Client.IPv6, 40001); got.Answer.Source != want {
		t.Errorf("port 40001 of any address: got %v, want source %s", got, want)
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
