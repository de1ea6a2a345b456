package lab_test

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

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
