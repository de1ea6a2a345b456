package table

import (
	"slices"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// reportsCounts reports whether the kernel reports the numbers of rows.
func reportsCounts(t testing.TB, table *Table) bool {
	t.Helper()
	sets, err := table.keeper.Kernel().Sets(table.keeper.Program())
	if err != nil || len(sets) == 0 {
		t.Fatalf("got sets %v, %v", sets, err)
	}
	return sets[0].Count >= 0
}

// Damage by another program, in each part of the table: whether verification
// reports it, or only the scrubber, and as which kind, and what a comparison
// names. It is repaired once; damage that only the scrubber reports is repaired
// without a rewrite. The test of package explain with this name reads the same
// damages.
func TestDamage(t *testing.T) {
	const affinityChain = "affinity.default.sticky.tcp.http"
	const web80 = "10.96.0.10 . tcp . 80"
	const want1 = "row service-targets " + web80 + " . 0:2 : 10.244.2.5 . 8080"
	affinityRules := []string{"changed rules of chain " + affinityChain + " default/sticky:http"}
	tests := map[string]struct {
		kind keep.DamageKind
		by   detection
		diff []string // nil if there are many differences
	}{
		"nothing":              {"", byNone, []string{}},
		"another table":        {"", byNone, []string{}},
		"flush ruleset":        {keep.DamagedTable, byVerify, []string{"missing table ip kube-proxy"}},
		"delete table":         {keep.DamagedTable, byVerify, []string{"missing table ip kube-proxy"}},
		"replace table":        {keep.DamagedTable, byVerify, nil},
		"make table dormant":   {keep.DamagedTable, byVerify, []string{"changed flags of the table found 0x1"}},
		"flush services":       {keep.DamagedRule, byVerify, []string{"changed rules of chain services"}},
		"flush nodeports":      {keep.DamagedRule, byVerify, []string{"changed rules of chain nodeports"}},
		"delete base chain":    {keep.DamagedChain, byVerify, []string{"missing chain nat-output"}},
		"change policy":        {keep.DamagedChain, byVerify, []string{"changed chain nat-output"}},
		"insert rule":          {keep.DamagedRule, byVerify, []string{"changed rules of chain services"}},
		"flush balancer":       {keep.DamagedRule, byVerify, []string{"changed rules of chain balance-2"}},
		"replace set":          {keep.DamagedSet, byVerify, nil},
		"flush verdict map":    {keep.DamagedRows, byVerify, nil},
		"flush targets":        {keep.DamagedRows, byVerify, nil},
		"flush classes":        {keep.DamagedRows, byVerify, nil},
		"flush set of sources": {keep.DamagedRows, byVerify, nil},
		"flush reserved ids":   {keep.DamagedRows, byCount, []string{"missing row reserved-ids 1:0"}},
		"delete row":           {keep.DamagedRows, byCount, []string{"missing " + want1 + " default/web:http"}},
		"delete a range": {keep.DamagedRows, byCount, []string{
			"missing row firewall-sources-24 192.0.2.10 . tcp . 80 . 198.51.100.0 default/lb:http",
		}},
		"add rows": {keep.DamagedRows, byCountOnly, []string{
			"extra row cluster-ips 10.96.7.7", "extra row reserved-ids 0:63",
			"extra row service-targets " + web80 + " . 0:9 : 10.9.9.9 . 1",
		}},
		"add a range": {keep.DamagedRows, byCountOnly, []string{
			"extra row firewall-sources-24 192.0.2.10 . tcp . 80 . 10.0.0.0",
		}},
		"change endpoint": {keep.DamagedRow, byScrub, []string{"changed " + want1 +
			" found row service-targets " + web80 + " . 0:2 : 10.9.9.9 . 1 default/web:http"}},
		"change class": {keep.DamagedRow, byScrub, []string{
			`changed row service-classes ` + web80 + ` comment "default/web:http" : 0:3` +
				` found row service-classes ` + web80 + ` : 0:2 default/web:http`,
		}},
		"change verdict": {keep.DamagedRow, byScrub, []string{
			"changed row class-chains 0:3 : goto balance-3 found row class-chains 0:3 : drop",
		}},
		"delete verdict": {keep.DamagedRows, byCount, []string{
			"missing row local-class-chains 400:1 : goto local-1",
		}},
		"flush affinity chain": {keep.DamagedAffinity, byScrub, affinityRules},
		"insert affinity rule": {keep.DamagedAffinity, byScrub, affinityRules},
		"flush chains of all kinds": {keep.DamagedRule, byVerify, append([]string{
			"changed rules of chain nodeports", "changed rules of chain balance-2"}, affinityRules...)},
		"add objects": {"", byNone, []string{"extra set y", "extra counter z", "extra chain x"}},
	}
	damages, err := txtar.ParseFile("testdata/damages.txtar")
	if err != nil || len(damages.Files) != len(tests) {
		t.Fatalf("got damages %v, %v, want one for each of the %d tests", damages, err, len(tests))
	}
	for _, file := range damages.Files {
		tt, ok := tests[file.Name]
		if !ok {
			t.Fatalf("no test of damage %q", file.Name)
		}
		t.Run(file.Name, func(t *testing.T) {
			t.Parallel()
			tabletest.NewNamespace(t)
			table := newSample(t)
			if tt.by == byCount || tt.by == byCountOnly {
				switch {
				case reportsCounts(t, table):
					tt.by = byVerify
				case tt.by == byCount:
					tt.by, tt.kind = byScrub, keep.DamagedRow
				default:
					tt.by = byNone
				}
			}
			tabletest.LoadNFT(t, string(file.Data))
			got := Differences(diffSteps(t, table, ""))
			if tt.diff == nil && len(got) == 0 || tt.diff != nil && !slices.Equal(got, tt.diff) {
				t.Errorf("got differences %q, want %q", got, tt.diff)
			}
			var d keep.Damage
			if err := table.keeper.Verify(); err != nil {
				d = *err.(*keep.Damage)
			}
			if byVerify := tt.by == byVerify; byVerify && d.Kind != tt.kind || tt.by == byNone && d.Kind != "" {
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
func checkRepair(t *testing.T, table *Table, kind keep.DamageKind, by detection) {
	t.Helper()
	rewrites := table.Stats().Rewrites
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

// checkRepairs compares the repairs and the rewrites after rewrites with
// those that a kind of damage needs.
func checkRepairs(t *testing.T, table *Table, kind keep.DamageKind, rewrites int) {
	t.Helper()
	if n := repairsOf(table); n != 1 {
		t.Errorf("got %d repairs, want 1", n)
	}
	if kind == keep.DamagedRow {
		return // if the row is a sample, the kind is keep.DamagedRows
	}
	if n := table.Stats().Repairs[kind]; n != 1 {
		t.Errorf("got repairs %v, want one of kind %s", table.Stats().Repairs, kind)
	}
	want := 1
	if kind == keep.DamagedAffinity {
		want = 0
	}
	if got := table.Stats().Rewrites - rewrites; got != want {
		t.Errorf("got %d rewrites, want %d", got, want)
	}
}
