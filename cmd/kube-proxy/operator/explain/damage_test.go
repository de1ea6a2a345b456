package explain_test

import (
	"slices"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// Damage by another program, in each part of the table: explain reports it,
// unless packets do not meet it. The test of package table with this name reads
// the same damages.
func TestDamage(t *testing.T) {
	notMet := []string{"nothing", "another table", "add objects", "flush reserved ids"}
	damages, err := txtar.ParseFile("../../../../proxier/table/testdata/damages.txtar")
	if err != nil || len(damages.Files) <= len(notMet) {
		t.Fatalf("got damages %v, %v", damages, err)
	}
	for i, damage := range damages.Files {
		if testing.Short() && i%3 != 0 { // on emulated machines, the test of package table reads the others
			continue
		}
		t.Run(damage.Name, func(t *testing.T) {
			t.Parallel()
			tabletest.NewNode(t)
			n := newNode(t, tabletest.Rules())
			tabletest.LoadNFT(t, string(damage.Data))
			if got := n.notices(); got == slices.Contains(notMet, damage.Name) {
				t.Errorf("got %t from explain", got)
			}
		})
	}
}

// notices reports whether explain finds, for one of some packets to frontends
// of the sample, that the kernel does not have the wanted table. The test fails
// if the kernel treats a packet in another way, and explain reports no
// difference.
func (n *testNode) notices() (found bool) {
	const pod, node, client, outside = "10.244.1.7", "172.30.0.11", "198.51.100.7", "203.0.113.1"
	for _, packet := range []string{
		"10.96.0.10:80 tcp from " + pod, "10.96.0.10:80 tcp from " + node, "10.96.0.30:80 tcp from " + pod,
		"10.96.0.40:80 tcp from " + pod, "10.96.7.7:80 tcp from " + pod, "192.0.2.10:80 tcp from " + client,
		"192.0.2.10:80 tcp from " + outside, "192.0.2.10:80 tcp from 10.0.0.7", node + ":30090 tcp from " + outside,
	} {
		d := &explain.Desired{}
		got, err := n.ask(packet, d)
		switch {
		case err != nil:
			n.t.Logf("%s: %v", packet, err)
			found = true
		case got.Difference == nil && got.Answer != n.wanted:
			n.t.Errorf("%s: got %q and no difference, want %q", packet, got.Answer, n.wanted)
		default:
			found = found || got.Difference != nil
		}
	}
	return found
}
