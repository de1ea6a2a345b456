package table

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// A changed counter is detected and repaired once.
func TestTamperingWithCounters(t *testing.T) {
	const counter = "counter ip kube-proxy drop-unallocated-address"
	for name, commands := range map[string]string{
		"delete":  "flush chain ip kube-proxy drop-unallocated-address\ndelete " + counter,
		"replace": "flush chain ip kube-proxy drop-unallocated-address\ndelete " + counter + "\nadd " + counter,
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			table := newSample(t)
			rewrites := table.Stats().Rewrites
			tabletest.LoadNFT(t, commands)
			mustCheck(t, table)
			checkTable(t, table)
			checkRepairs(t, table, keep.DamagedCounter, rewrites)
			mustCheck(t, table)
			if n := repairsOf(table); n != 1 {
				t.Errorf("got %d repairs, want 1", n)
			}
		})
	}
}

// setCounters sets the counter number i to i+1 packets, through a listing that
// nft loads.
func setCounters(t *testing.T) {
	t.Helper()
	listing := tabletest.NFT(t, "", "list", "ruleset")
	for i, r := range ruleset.Refusals() {
		head := "counter " + r.Counter().Name + " {\n\t\tpackets "
		if !strings.Contains(listing, head+"0") {
			t.Fatalf("got no counter %s of 0 packets in\n%s", r.Counter().Name, listing)
		}
		listing = strings.Replace(listing, head+"0", fmt.Sprintf("%s%d", head, i+1), 1)
	}
	tabletest.LoadNFT(t, "flush ruleset\n"+listing)
}

// checkCounters checks that the counters have the values of setCounters.
func checkCounters(t *testing.T, table *Table, when string) {
	t.Helper()
	found, err := table.keeper.Kernel().Counters(table.keeper.Program())
	if err != nil {
		t.Fatal(err)
	}
	packets := make(map[string]uint64)
	for _, c := range found {
		packets[c.Name] = c.Packets
	}
	for i, r := range ruleset.Refusals() {
		if n := packets[r.Counter().Name]; n != uint64(i+1) {
			t.Errorf("%s: counter %s: got %d packets, want %d", when, r.Counter().Name, n, i+1)
		}
	}
}

// The counters keep their values when the table is rewritten or repaired, when
// the program changes, and after a restart.
func TestCountersKeepTheirValues(t *testing.T) {
	tabletest.NewNamespace(t)
	newSample(t)
	setCounters(t)
	table := newSample(t)
	checkTable(t, table)
	checkCounters(t, table, "restart")

	table.keeper.Distrust(keep.RewriteFailure, "test")
	tabletest.Sync(t, table)
	checkCounters(t, table, "rewrite")

	tabletest.LoadNFT(t, "flush chain ip kube-proxy reject-no-endpoints")
	mustCheck(t, table)
	if n := repairsOf(table); n != 1 {
		t.Errorf("got %d repairs, want 1", n)
	}
	checkCounters(t, table, "repair")

	node := *table.desired.node
	node.ServiceCIDRs = tabletest.Prefixes("10.97.0.0/16")
	table.SetNode(&node)
	tabletest.Sync(t, table)
	checkCounters(t, table, "other service CIDR")
	checkTable(t, table)
}
