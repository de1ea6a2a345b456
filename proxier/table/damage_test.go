package table

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// check calls Check.
func check(t testing.TB, table *Table) {
	t.Helper()
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
}

// repairsOf returns the number of all repairs.
func repairsOf(table *Table) (n int) {
	for _, count := range table.Stats().Repairs {
		n += count
	}
	return n
}

// counting is whether the kernel reports the numbers of rows.
func counting(t testing.TB, table *Table) bool {
	t.Helper()
	sets, err := table.kernel.Sets(table.committed.program)
	if err != nil || len(sets) == 0 {
		t.Fatalf("sets %v, %v", sets, err)
	}
	return sets[0].Count >= 0
}

// A change to the table by another program is detected by the next Check, or, if
// it is one of single rows or of the chains of session affinity, by the scrubber.
// The repair writes as little as it can, and is counted by the kind of damage.
func TestTampering(t *testing.T) {
	const (
		byCheck = iota
		byCount // where the kernel reports the number of rows, else by the scrubber
		byScrub
	)
	sticky := "ip kube-proxy affinity.default.sticky.tcp.http"
	for name, tt := range map[string]struct {
		commands string
		kind     DamageKind
		by       int
		rewrites int // that are needed to repair it
	}{
		"flush ruleset":       {"flush ruleset", damagedTable, byCheck, 1},
		"delete table":        {"delete table ip kube-proxy", damagedTable, byCheck, 1},
		"another table":       {"delete table ip kube-proxy; add table ip kube-proxy", damagedTable, byCheck, 1},
		"dormant table":       {"add table ip kube-proxy { flags dormant; }", damagedTable, byCheck, 1},
		"flush a chain":       {"flush chain ip kube-proxy services", damagedRule, byCheck, 1},
		"flush nodeports":     {"flush chain ip kube-proxy nodeports", damagedRule, byCheck, 1},
		"delete a base chain": {"delete chain ip kube-proxy nat-output", damagedChain, byCheck, 1},
		"policy of a chain":   {"add chain ip kube-proxy nat-output { policy drop; }", damagedChain, byCheck, 1},
		"insert a rule":       {"insert rule ip kube-proxy services accept", damagedRule, byCheck, 1},
		"flush a balancer":    {"flush chain ip kube-proxy balance-2", damagedRule, byCheck, 1},
		"replace a set": {"flush chain ip kube-proxy external-local; flush chain ip kube-proxy services; delete set ip kube-proxy local-ips; " +
			"add set ip kube-proxy local-ips { type ipv4_addr . inet_proto . inet_service; }", damagedSet, byCheck, 1},
		"flush a map":       {"flush map ip kube-proxy service-ips", damagedRows, byCheck, 1},
		"flush endpoints":   {"flush map ip kube-proxy service-endpoints", damagedRows, byCheck, 1},
		"flush a set":       {"flush set ip kube-proxy local-ips", damagedRows, byCheck, 1},
		"flush sources":     {"flush set ip kube-proxy firewall-sources-tcp", damagedRows, byCheck, 1},
		"delete a row":      {"delete element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 }", damagedRows, byCount, 1},
		"add a row":         {"add element ip kube-proxy cluster-ips { 10.96.7.7 }", damagedRows, byCount, 1},
		"change a row":      {"delete element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 }; add element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 : 10.9.9.9 . 1 }", damagedRow, byScrub, 0},
		"change a verdict":  {"delete element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 }; add element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 : drop }", damagedRow, byScrub, 0},
		"flush affinity":    {"flush chain " + sticky, damagedAffinity, byScrub, 0},
		"rule for affinity": {"insert rule " + sticky + " accept", damagedAffinity, byScrub, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			table := newTable(t, sampleConfig(), nft.IPv4)
			tabletest.PassSample(table)
			tabletest.Sync(t, table)
			if tt.by == byCount {
				if !counting(t, table) && name == "add a row" {
					return // nothing shows such a row
				}
				if !counting(t, table) {
					tt.by, tt.kind, tt.rewrites = byScrub, damagedRow, 0
				}
			}
			clear(table.committed.samples) // those that are found instead are good too
			tabletest.LoadNFT(t, strings.ReplaceAll(tt.commands, "; ", "\n"))
			before := table.stats.Rewrites
			if tt.by == byScrub {
				scrubAll(t, table)
			} else {
				check(t, table)
			}
			checkTable(t, table)
			if n := table.stats.Rewrites - before; n != tt.rewrites && tt.kind != damagedRow {
				t.Errorf("%d rewrites, want %d", n, tt.rewrites)
			}
			for _, kind := range DamageKinds() {
				want := 0
				if kind == tt.kind {
					want = 1
				}
				if kind == damagedRows && tt.kind == damagedRow {
					continue // a changed row can be one of the samples
				}
				if got := table.observed.repairs.count[kind]; got != want && tt.kind != damagedRow {
					t.Errorf("%d repairs of kind %s, want %d", got, kind, want)
				}
			}
			if repairsOf(table) != 1 {
				t.Errorf("%d repairs, want 1", repairsOf(table))
			}
			check(t, table)
			scrubAll(t, table)
			if repairsOf(table) != 1 {
				t.Error("the repaired table was repaired again")
			}
		})
	}
}
