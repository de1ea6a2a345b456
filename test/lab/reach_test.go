package lab_test

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

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
