package lab_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

func protocols() []string { return []string{"tcp", "udp"} }

// probe makes an attempt with the default options.
func probe(t *testing.T, from *lab.Namespace, protocol string, to netip.AddrPort) lab.Result {
	t.Helper()
	return lab.Probe(t.Context(), from, protocol, to, lab.ProbeOptions{})
}

// expect makes an attempt and checks its outcome.
func expect(t *testing.T, want lab.Outcome, from *lab.Namespace, protocol string, to netip.AddrPort) {
	t.Helper()
	if got := probe(t, from, protocol, to); got.Outcome != want {
		t.Errorf("%s %s to %s: got %v, want %v", protocol, from.Name, to, got, want)
	}
}

// The kernel's default limits on ICMP errors would suppress most refusals.
func TestICMPErrorsUnlimited(t *testing.T) {
	l := labtest.New(t)
	for _, addr := range l.Node1.Addrs() {
		for range 100 {
			expect(t, lab.Refused, l.Client, "udp", netip.AddrPortFrom(addr, port))
		}
	}
}

func TestFailed(t *testing.T) {
	l := labtest.New(t)
	for _, protocol := range protocols() {
		foreign := lab.ProbeOptions{Local: netip.MustParseAddrPort("10.1.2.3:4000")}
		got := lab.Probe(t.Context(), l.Client, protocol, netip.AddrPortFrom(l.Node1.IPv4, port), foreign)
		if got.Outcome != lab.Failed || got.Err == nil {
			t.Errorf("%s from a foreign address: got %v, want failed", protocol, got)
		}
	}
}

func BenchmarkLab(b *testing.B) {
	for b.Loop() {
		l := labtest.New(b)
		for i := range 4 {
			labtest.AddPod(b, l.Nodes()[i%2], fmt.Sprintf("pod-%d", i))
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
