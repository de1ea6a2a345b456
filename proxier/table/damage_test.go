package table

import (
	"slices"
	"strings"
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
	damages, err := txtar.ParseFile("testdata/damages.txtar")
	if err != nil {
		t.Fatal(err)
	}
	found, err := txtar.ParseFile("testdata/damages-found.txtar")
	if err != nil || len(found.Files) != len(damages.Files) {
		t.Fatalf("got %d damages and %d results, %v", len(damages.Files), len(found.Files), err)
	}
	for i, file := range damages.Files {
		t.Run(file.Name, func(t *testing.T) {
			t.Parallel()
			tabletest.NewNamespace(t)
			want := strings.Split(strings.TrimSpace(string(found.Files[i].Data)), "\n")
			kind, by, _ := strings.Cut(want[0], " by ")
			table := newSample(t)
			switch counts := reportsCounts(t, table); {
			case strings.HasPrefix(by, "count") && counts:
				by = "verify"
			case by == "count":
				kind, by = "row", "scrub"
			case by == "count-only":
				kind, by = "none", "none"
			}
			tabletest.LoadNFT(t, string(file.Data))
			got := Differences(diffSteps(t, table, ""))
			if many := want[len(want)-1] == "*"; many && len(got) == 0 || !many && !slices.Equal(got, want[1:]) {
				t.Errorf("got differences %q, want %q", got, want[1:])
			}
			d := keep.Damage{Kind: "none"}
			if err := table.keeper.Verify(); err != nil {
				d = *err.(*keep.Damage)
			}
			if by == "verify" && string(d.Kind) != kind || by == "none" && d.Kind != "none" {
				t.Errorf("got %+v from verification, want kind %q", d, kind)
			}
			checkRepair(t, table, keep.DamageKind(kind), by)
		})
	}
}

// checkRepair checks that the next Check, or the scrubber, repairs damage, once
// and as this kind. Only chains of session affinity and single rows are
// repaired without a rewrite.
func checkRepair(t *testing.T, table *Table, kind keep.DamageKind, by string) {
	t.Helper()
	before, want, wantRewrites := table.Stats().Rewrites, 1, 1
	if by == "none" {
		want = 0
	}
	if by == "none" || kind == keep.DamagedAffinity {
		wantRewrites = 0
	}
	repair := map[bool]func(testing.TB, *Table){true: mustCheck, false: scrubAll}[by == "verify"]
	for _, check := range []func(testing.TB, *Table){repair, mustCheck, scrubAll} {
		check(t, table)
		s := table.Stats()
		wrongKind := kind != keep.DamagedRow && (s.Repairs[kind] != want || s.Rewrites-before != wantRewrites)
		if repairsOf(table) != want || wrongKind { // the kind of a row is keep.DamagedRows if it is a sample
			t.Errorf("got repairs %v and %d rewrites, want %d of kind %s", s.Repairs, s.Rewrites-before, want, kind)
		}
	}
	if by != "none" {
		checkTable(t, table)
		checkDiff(t, table)
	}
}
