package table

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// explainNotices reports whether explain finds, for one of some packets to
// frontends of the sample, that the kernel does not have the wanted table. The
// test fails if the kernel treats a packet in another way, and explain reports
// no difference.
func explainNotices(t *testing.T, table *Table) (found bool) {
	t.Helper()
	expected, err := table.Expected(nil)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := explain.OpenKernel(nft.IPv4)
	if err != nil {
		return true
	}
	defer kernel.Close()
	const pod, node, client, outside = "10.244.1.7", "172.30.0.11", "198.51.100.7", "203.0.113.1"
	for _, packet := range [][2]string{
		{pod, "10.96.0.10:80"}, {node, "10.96.0.10:80"}, {pod, "10.96.0.30:80"}, {pod, "10.96.0.40:80"},
		{pod, "10.96.7.7:80"}, {client, "192.0.2.10:80"}, {outside, "192.0.2.10:80"}, {"10.0.0.7", "192.0.2.10:80"},
		{outside, node + ":30090"},
	} {
		q := explain.Query{
			Source: addr(packet[0]), Destination: netip.MustParseAddrPort(packet[1]), Protocol: cluster.TCP,
		}
		want, err := explain.Explain(expected, kernel, q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := kernel.Explain(q)
		if err != nil {
			t.Logf("packet %v: %v", packet, err)
			found = true
			continue
		}
		got.Add(&explain.Desired{Result: want})
		if got.Difference == nil && got.Answer != want.Answer {
			t.Errorf("packet %v: got %q and no difference, want %q", packet, got.Answer, want.Answer)
		}
		found = found || got.Difference != nil
	}
	return found
}
