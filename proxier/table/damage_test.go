package table

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// reportsCounts reports whether the kernel reports the numbers of rows.
func reportsCounts(t testing.TB, table *Table) bool {
	t.Helper()
	sets, err := table.kernel.Sets(table.committed.program)
	if err != nil || len(sets) == 0 {
		t.Fatalf("got sets %v, %v", sets, err)
	}
	return sets[0].Count >= 0
}

// detection is the part that detects a kind of damage.
type detection int

const (
	byVerify detection = iota // the next Check
	byCount                   // the next Check where the kernel reports the number of rows, else the scrubber
	byScrub                   // the scrubber
)

// A change of the table by another program is detected, either by the next
// Check or by the scrubber, and repaired once. The repair is counted by the
// kind of the damage. Damage that the scrubber detects is repaired without a
// rewrite.
func TestTampering(t *testing.T) {
	const affinityChain = "ip kube-proxy affinity.default.sticky.tcp.http"
	for name, tt := range map[string]struct {
		commands string // of nft; a semicolon separates them
		kind     DamageKind
		by       detection
	}{
		"flush ruleset":        {"flush ruleset", damagedTable, byVerify},
		"delete table":         {"delete table ip kube-proxy", damagedTable, byVerify},
		"replace table":        {"delete table ip kube-proxy; add table ip kube-proxy", damagedTable, byVerify},
		"make table dormant":   {"add table ip kube-proxy { flags dormant; }", damagedTable, byVerify},
		"flush services":       {"flush chain ip kube-proxy services", damagedRule, byVerify},
		"flush nodeports":      {"flush chain ip kube-proxy nodeports", damagedRule, byVerify},
		"delete base chain":    {"delete chain ip kube-proxy nat-output", damagedChain, byVerify},
		"change policy":        {"add chain ip kube-proxy nat-output { policy drop; }", damagedChain, byVerify},
		"insert rule":          {"insert rule ip kube-proxy services accept", damagedRule, byVerify},
		"flush balancer":       {"flush chain ip kube-proxy balance-2", damagedRule, byVerify},
		"replace set":          {replaceLocalIPs, damagedSet, byVerify},
		"flush verdict map":    {"flush map ip kube-proxy service-ips", damagedRows, byVerify},
		"flush endpoints":      {"flush map ip kube-proxy service-endpoints", damagedRows, byVerify},
		"flush set":            {"flush set ip kube-proxy local-ips", damagedRows, byVerify},
		"flush set of sources": {"flush set ip kube-proxy firewall-sources-24", damagedRows, byVerify},
		"delete row":           {deleteEndpoint, damagedRows, byCount},
		"add row":              {"add element ip kube-proxy cluster-ips { 10.96.7.7 }", damagedRows, byCount},
		"change endpoint":      {changeEndpoint, damagedRow, byScrub},
		"change verdict":       {changeVerdict, damagedRow, byScrub},
		"flush affinity chain": {"flush chain " + affinityChain, damagedAffinity, byScrub},
		"insert affinity rule": {"insert rule " + affinityChain + " accept", damagedAffinity, byScrub},
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			table := newSample(t)
			if tt.by == byCount && !reportsCounts(t, table) {
				if name == "add row" {
					return // only the number of rows reveals it
				}
				tt.by, tt.kind = byScrub, damagedRow
			}
			clear(table.committed.samples) // verification finds new ones
			tabletest.LoadNFT(t, strings.ReplaceAll(tt.commands, "; ", "\n"))
			rewrites := table.stats.Rewrites
			if tt.by == byScrub {
				scrubAll(t, table)
			} else {
				mustCheck(t, table)
			}
			checkTable(t, table)
			checkRepairs(t, table, tt.kind, rewrites)
			mustCheck(t, table)
			scrubAll(t, table)
			if n := repairsOf(table); n != 1 {
				t.Errorf("got %d repairs, want 1", n)
			}
		})
	}
}

// Commands of TestTampering.
const (
	replaceLocalIPs = "flush chain ip kube-proxy external-local; flush chain ip kube-proxy services; " +
		"delete set ip kube-proxy local-ips; " +
		"add set ip kube-proxy local-ips { type ipv4_addr . inet_proto . inet_service; }"
	deleteEndpoint = "delete element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 }"
	changeEndpoint = deleteEndpoint + "; " +
		"add element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 : 10.9.9.9 . 1 }"
	changeVerdict = "delete element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 }; " +
		"add element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 : drop }"
)

// checkRepairs compares the repairs and the rewrites after rewrites with
// those that a kind of damage needs.
func checkRepairs(t *testing.T, table *Table, kind DamageKind, rewrites int) {
	t.Helper()
	if n := repairsOf(table); n != 1 {
		t.Errorf("got %d repairs, want 1", n)
	}
	if kind == damagedRow {
		return // if the row is a sample, the kind is damagedRows
	}
	if n := table.observed.repairs.count[kind]; n != 1 {
		t.Errorf("got repairs %v, want one of kind %s", table.observed.repairs.count, kind)
	}
	want := 1
	if kind == damagedAffinity {
		want = 0
	}
	if got := table.stats.Rewrites - rewrites; got != want {
		t.Errorf("got %d rewrites, want %d", got, want)
	}
}
