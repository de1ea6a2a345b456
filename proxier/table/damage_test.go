package table_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// Damage by another program, in each part of the table: whether a check reports
// it, or only the scrubber, and as which kind, and what a comparison names. It
// is repaired once, without a rewrite unless the table is gone. The test of
// package explain with this name reads the same damages.
func TestDamage(t *testing.T) {
	t.Parallel()
	damages, err := txtar.ParseFile("testdata/damages.txtar")
	must.NoError(t, err)
	found, err := txtar.ParseFile("testdata/damages-found.txtar")
	if err != nil || len(found.Files) != len(damages.Files) {
		t.Fatalf("got %d damages and %d results, %v", len(damages.Files), len(found.Files), err)
	}
	for i, file := range damages.Files {
		if testing.Short() && i%3 == 0 { // on emulated machines, the test of package explain reads the others
			continue
		}
		t.Run(file.Name, func(t *testing.T) {
			e := newSample(t)
			want := strings.Split(strings.TrimSpace(string(found.Files[i].Data)), "\n")
			kind, by, _ := strings.Cut(want[0], " by ")
			by, vital := strings.CutSuffix(by, ", vital")
			sets, err := e.conn.Sets(&nft.Table{Family: nft.IPv4, Name: ruleset.TableName})
			must.NoError(t, err)
			switch counts := sets[0].Count >= 0; {
			case strings.HasPrefix(by, "count") && counts:
				by = "verify"
			case by == "count":
				kind, by = "row", "scrub"
			case by == "count-only":
				kind, by = "none", "none"
			}
			tabletest.LoadNFT(e.t, string(file.Data))
			got, err := differences(e.tables[0])
			many := want[len(want)-1] == "*"
			if err != nil || many && len(got) == 0 || !many && !slices.Equal(got, want[1:]) {
				t.Errorf("got differences %q, %v, want %q", got, err, want[1:])
			}
			gone := kind == string(keep.DamagedTable) && file.Name != "make table dormant"
			checkRepair(t, e.tables[0], keep.DamageKind(kind), by, gone, vital)
			if by != "none" {
				e.checkWanted(t)
			}
		})
	}
}

// checkRepair checks that the next Check, or the scrubber, repairs damage, once
// and as this kind, by a rewrite only if the table is gone. Damage of the
// structure, and of vital sets, is an outage.
func checkRepair(t *testing.T, of *table.Table, kind keep.DamageKind, by string, gone, vital bool) {
	t.Helper()
	before, want, wantRewrites := of.Stats().Rewrites, 1, 0
	if by == "none" {
		want = 0
	}
	if gone {
		wantRewrites = 1
	}
	repair := map[bool]func(*table.Table) error{true: (*table.Table).Check, false: scrub}[by == "verify"]
	structure := []keep.DamageKind{keep.DamagedTable, keep.DamagedSet, keep.DamagedChain, keep.DamagedRule}
	for i, check := range []func(*table.Table) error{repair, (*table.Table).Check, scrub} {
		must.NoError(t, check(of))
		s := of.Stats()
		outage := i == 0 && by == "verify" && (vital || slices.Contains(structure, kind))
		if of.Damaged() != outage {
			t.Errorf("check %d found damage of kind %s: got an outage %v, want %v", i, kind, of.Damaged(), outage)
		}
		wrongKind := kind != keep.DamagedRow && (s.Repairs[kind] != want || s.Rewrites-before != wantRewrites)
		if sum(maps.Values(s.Repairs)) != want || wrongKind { // the kind of a row is keep.DamagedRows if it is a sample
			t.Errorf("got repairs %v and %d rewrites, want %d of kind %s", s.Repairs, s.Rewrites-before, want, kind)
		}
	}
}
