package table

import (
	"slices"
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

// Damage by another program, in each part of the table: whether verification
// reports it, or only the scrubber, and as which kind, and what a comparison
// names. It is repaired once; damage that only the scrubber reports is repaired
// without a rewrite.
func TestDamage(t *testing.T) {
	const affinityChain = "affinity.default.sticky.tcp.http"
	const web80 = "10.96.0.10 . tcp . 80"
	const want1 = "row service-endpoints " + web80 + " . 1 : 10.244.2.5 . 8080"
	affinityRules := []string{"changed rules of chain " + affinityChain + " default/sticky:http"}
	for name, tt := range map[string]struct {
		commands string // of nft; a semicolon separates them
		kind     DamageKind
		by       detection
		diff     []string // nil if there are many differences
	}{
		"nothing":       {"", "", byNone, []string{}},
		"another table": {"add table ip other", "", byNone, []string{}},
		"flush ruleset": {"flush ruleset", damagedTable, byVerify, []string{"missing table ip kube-proxy"}},
		"delete table": {"delete table ip kube-proxy", damagedTable, byVerify,
			[]string{"missing table ip kube-proxy"}},
		"replace table": {"delete table ip kube-proxy; add table ip kube-proxy", damagedTable, byVerify, nil},
		"make table dormant": {"add table ip kube-proxy { flags dormant; }", damagedTable, byVerify,
			[]string{"changed flags of the table found 0x1"}},
		"flush services": {"flush chain ip kube-proxy services", damagedRule, byVerify,
			[]string{"changed rules of chain services"}},
		"flush nodeports": {"flush chain ip kube-proxy nodeports", damagedRule, byVerify,
			[]string{"changed rules of chain nodeports"}},
		"delete base chain": {"delete chain ip kube-proxy nat-output", damagedChain, byVerify,
			[]string{"missing chain nat-output"}},
		"change policy": {"add chain ip kube-proxy nat-output { policy drop; }", damagedChain, byVerify,
			[]string{"changed chain nat-output"}},
		"insert rule": {"insert rule ip kube-proxy services accept", damagedRule, byVerify,
			[]string{"changed rules of chain services"}},
		"flush balancer": {"flush chain ip kube-proxy balance-2", damagedRule, byVerify,
			[]string{"changed rules of chain balance-2"}},
		"replace set":          {replaceLocalIPs, damagedSet, byVerify, nil},
		"flush verdict map":    {"flush map ip kube-proxy service-ips", damagedRows, byVerify, nil},
		"flush endpoints":      {"flush map ip kube-proxy service-endpoints", damagedRows, byVerify, nil},
		"flush set":            {"flush set ip kube-proxy local-ips", damagedRows, byVerify, nil},
		"flush set of sources": {"flush set ip kube-proxy firewall-sources-24", damagedRows, byVerify, nil},
		"flush reserved ids": {"flush set ip kube-proxy reserved-affinity-ids", damagedRows, byCount,
			[]string{"missing row reserved-affinity-ids 65536"}},
		"delete row": {deleteEndpoint, damagedRows, byCount,
			[]string{"missing " + want1 + " default/web:http"}},
		"delete a range": {"delete element ip kube-proxy firewall-sources-24 { 192.0.2.10 . tcp . 80 . 198.51.100.0 }",
			damagedRows, byCount,
			[]string{"missing row firewall-sources-24 192.0.2.10 . tcp . 80 . 198.51.100.0 default/lb:http"}},
		"add rows": {"add element ip kube-proxy cluster-ips { 10.96.7.7 }; " +
			"add element ip kube-proxy service-endpoints { " + web80 + " . 9 : 10.9.9.9 . 1 }; " +
			"add element ip kube-proxy reserved-affinity-ids { 99 }", damagedRows, byCountOnly, []string{
			"extra row cluster-ips 10.96.7.7", "extra row reserved-affinity-ids 99",
			"extra row service-endpoints " + web80 + " . 9 : 10.9.9.9 . 1",
		}},
		"add a range": {"add element ip kube-proxy firewall-sources-24 { 192.0.2.10 . tcp . 80 . 10.0.0.0 }",
			damagedRows, byCountOnly,
			[]string{"extra row firewall-sources-24 192.0.2.10 . tcp . 80 . 10.0.0.0"}},
		"change endpoint": {changeEndpoint, damagedRow, byScrub, []string{"changed " + want1 +
			" found row service-endpoints " + web80 + " . 1 : 10.9.9.9 . 1 default/web:http"}},
		"change verdict": {changeVerdict, damagedRow, byScrub, []string{
			`changed row service-ips ` + web80 + ` comment "default/web:http" : goto balance-3` +
				` found row service-ips ` + web80 + ` : drop default/web:http`,
		}},
		"flush affinity chain": {"flush chain ip kube-proxy " + affinityChain, damagedAffinity, byScrub, affinityRules},
		"insert affinity rule": {"insert rule ip kube-proxy " + affinityChain + " accept",
			damagedAffinity, byScrub, affinityRules},
		"flush chains of all kinds": {"flush chain ip kube-proxy nodeports; flush chain ip kube-proxy balance-2; " +
			"flush chain ip kube-proxy " + affinityChain, damagedRule, byVerify, append([]string{
			"changed rules of chain nodeports", "changed rules of chain balance-2"}, affinityRules...)},
		"add objects": {"add chain ip kube-proxy x; add set ip kube-proxy y { type ipv4_addr; }; " +
			"add counter ip kube-proxy z", "", byNone, []string{"extra set y", "extra counter z", "extra chain x"}},
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNode(t)
			table := newSample(t)
			explained := tt.by != byNone && name != "flush reserved ids" // which packets do not meet
			if tt.by == byCount || tt.by == byCountOnly {
				switch {
				case reportsCounts(t, table):
					tt.by = byVerify
				case tt.by == byCount:
					tt.by, tt.kind = byScrub, damagedRow
				default:
					tt.by = byNone
				}
			}
			clear(table.committed.samples) // verification finds new ones
			tabletest.LoadNFT(t, strings.ReplaceAll(tt.commands, "; ", "\n"))
			got := differences(diffSteps(t, table, ""))
			if tt.diff == nil && len(got) == 0 || tt.diff != nil && !slices.Equal(got, tt.diff) {
				t.Errorf("got differences %q, want %q", got, tt.diff)
			}
			if got := explainNotices(t, table); got != explained {
				t.Errorf("got %t from explain", got)
			}
			var d damage
			if err := table.verify(); err != nil {
				d = *err.(*damage)
			}
			if byVerify := tt.by == byVerify; byVerify && d.kind != tt.kind || tt.by == byNone && d.kind != "" {
				t.Errorf("got %+v from verification, want kind %q", d, tt.kind)
			}
			checkRepair(t, table, tt.kind, tt.by)
		})
	}
}

// detection is the part that detects a kind of damage.
type detection int

const (
	byNone      detection = iota
	byVerify              // the next Check
	byCount               // the next Check where the kernel reports the number of rows, else the scrubber
	byCountOnly           // the next Check where the kernel reports the number of rows
	byScrub               // the scrubber
)

// checkRepair checks that the next Check, or the scrubber, repairs damage, once
// and as this kind.
func checkRepair(t *testing.T, table *Table, kind DamageKind, by detection) {
	t.Helper()
	rewrites := table.stats.Rewrites
	if by == byVerify {
		mustCheck(t, table)
	} else {
		scrubAll(t, table)
	}
	if by == byNone {
		if n := repairsOf(table); n != 0 {
			t.Errorf("got %d repairs, want 0", n)
		}
		return
	}
	checkTable(t, table)
	checkDiff(t, table)
	checkRepairs(t, table, kind, rewrites)
	mustCheck(t, table)
	scrubAll(t, table)
	if n := repairsOf(table); n != 1 {
		t.Errorf("got %d repairs, want 1", n)
	}
}

// Commands of TestDamage.
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
