package table

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// injectAtCommit injects a fault at the n-th commit: it fails if fail is not
// nil, and is otherwise followed by a call of after. after can be nil.
func injectAtCommit(table *Table, n int, fail error, after func()) *tabletest.Kernel {
	k := injectFaults(table)
	k.OnCommit = func(_ *nft.Batch, commit func() error) error {
		n--
		if n == 0 && fail != nil {
			return fail
		}
		err := commit()
		if n == 0 {
			after()
		}
		return err
	}
	return k
}

// If another program changes rules between a rewrite and its verification,
// the sync fails, and the next one writes everything.
func TestChangeAfterRewrite(t *testing.T) {
	tabletest.NewNamespace(t)
	newSample(t)
	tabletest.LoadNFT(t, "add chain ip kube-proxy other")
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	injectAtCommit(table, 1, nil, func() { tabletest.LoadNFT(t, "flush chain ip kube-proxy services") })
	var d *keep.Damage
	if err := table.Sync(); !errors.As(err, &d) || d.Kind != keep.DamagedRule {
		t.Errorf("got %v, want damage of kind %s", err, keep.DamagedRule)
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// If another program changes a base chain between an update that adds a
// balancer and the verification of the update, the change is detected.
func TestChangeAfterUpdate(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	k := injectAtCommit(table, 1, nil, func() {
		tabletest.LoadNFT(t, "add chain ip kube-proxy nat-output { policy drop; }")
	})
	for i := range 9 { // no other Service has that many endpoints
		tabletest.SetEndpoint(table, web, tabletest.Endpoint(fmt.Sprintf("10.244.9.%d", i)))
	}
	var d *keep.Damage
	if err := table.Sync(); !errors.As(err, &d) || d.Kind != keep.DamagedChain {
		t.Errorf("got %v, want damage of kind %s", err, keep.DamagedChain)
	}
	k.OnCommit = nil
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// Rows about this node can be samples.
func TestSamplesOfNodeRows(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, randomConfig(false), nft.IPv4)
	tabletest.PassSample(table)
	node := tabletest.Node()
	for i := range 2 * 4 {
		node.NodePortIPs = append(node.NodePortIPs, addr(fmt.Sprintf("10.0.0.%d", i+1)))
	}
	table.SetNode(node)
	tabletest.Sync(t, table)
	without := *node
	without.NodePortIPs = node.NodePortIPs[4:]
	table.SetNode(&without)
	tabletest.Sync(t, table)
	injectFaults(table).NoCounts = true
	tabletest.LoadNFT(t, "flush set ip kube-proxy nodeport-ips")
	var d *keep.Damage
	if err := table.keeper.Verify(); !errors.As(err, &d) || d.Kind != keep.DamagedRows {
		t.Errorf("got %v, want damage of kind %s", err, keep.DamagedRows)
	}
}

// While other programs commit all the time, verifications must not use more
// than their share of a core. A Check that does not verify has no rest.
func TestRest(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	tabletest.LoadNFT(t, "add table ip other")
	mustCheck(t, table)
	if got := table.Rest(); got <= 0 || got > 300*time.Millisecond {
		t.Errorf("rest after a verification: got %v, want more than 0 and at most %v", got, 300*time.Millisecond)
	}
	mustCheck(t, table)
	if got := table.Rest(); got != 0 {
		t.Errorf("rest after a Check without a verification: got %v, want 0", got)
	}
}
