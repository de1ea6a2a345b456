package table

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// onCommit injects a fault at the n-th commit: it fails if fail is not nil, and
// otherwise calls after. after can be nil.
func onCommit(table *Table, n int, fail error, after func()) *tabletest.Kernel {
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

// setNamed returns a set of the program.
func setNamed(table *Table, name string) *nft.Set {
	i := slices.IndexFunc(table.committed.program.Sets, func(s *nft.Set) bool { return s.Name == name })
	return table.committed.program.Sets[i]
}

// Another program that changes the rules between a rewrite and its observation
// makes the sync fail and the next one write everything.
func TestChangeBeforeObserving(t *testing.T) {
	tabletest.NewNamespace(t)
	first := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(first)
	tabletest.Sync(t, first)
	tabletest.LoadNFT(t, "add chain ip kube-proxy stray") // for prune
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	onCommit(table, 1, nil, func() { tabletest.LoadNFT(t, "flush chain ip kube-proxy services") })
	var d *damage
	if err := table.Sync(); !errors.As(err, &d) || d.kind != damagedRule {
		t.Errorf("got %v, want damaged rules", err)
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// A base chain that another program changes between an update that adds a balancer
// and its observation is not taken for ours.
func TestChangeBeforeObservingAnUpdate(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	k := onCommit(table, 1, nil, func() {
		tabletest.LoadNFT(t, "add chain ip kube-proxy nat-output { policy drop; }")
	})
	for i := range 9 { // a number of endpoints that is new
		table.SetEndpoint(cluster.ServiceName{Namespace: "default", Name: "web"}, tabletest.Endpoint(fmt.Sprintf("10.244.9.%d", i)))
	}
	var d *damage
	if err := table.Sync(); !errors.As(err, &d) || d.kind != damagedChain {
		t.Errorf("got %v, want a damaged chain", err)
	}
	k.OnCommit = nil
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// Rows about this node are samples too.
func TestSamplesOfNodeRows(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, randomConfig(nft.IPv4, false), nft.IPv4)
	tabletest.PassSample(table)
	node := tabletest.Node()
	for i := range 2 * maxSamples {
		node.NodePortIPs = append(node.NodePortIPs, addr(fmt.Sprintf("10.0.0.%d", i+1)))
	}
	table.SetNode(node)
	tabletest.Sync(t, table)
	without := *node
	without.NodePortIPs = node.NodePortIPs[maxSamples:]
	table.SetNode(&without)
	tabletest.Sync(t, table)
	set := setNamed(table, "nodeport-ips")
	delete(table.committed.samples, set)
	if rows := table.samplesOf(set); len(rows) != 1 {
		t.Errorf("samples %v, want one", rows)
	}
}
