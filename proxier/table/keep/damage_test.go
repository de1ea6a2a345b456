package keep_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// diff returns the differences between the table and what is wanted.
func (f *firewall) diff(t *testing.T) (all []string) {
	t.Helper()
	d, err := f.Diff(wanted{f})
	if err != nil {
		t.Fatal(err)
	}
	for {
		step, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range step.Differences {
			all = append(all, strings.TrimSpace(fmt.Sprintln(d.Kind, d.Object, d.Owner)))
		}
		if step.Done {
			return all
		}
	}
}

// Another program damages the table. Diff finds each difference. Check finds
// and repairs what a packet can meet: only what is damaged, unless the table is
// gone. It finds rows that were added only if the kernel reports numbers of
// rows.
func TestDamages(t *testing.T) {
	for _, cells := range keep.ReadTable(t, "damages.txtar", "damages") {
		commands, diff, kind, whole := cells[0], cells[1], keep.DamageKind(cells[2]), cells[3] != ""
		test := func(t *testing.T, counts bool, kind keep.DamageKind, whole bool) {
			t.Parallel()
			f := newServing(t)
			f.kernel.NoCounts = !counts
			switch {
			case !counts && strings.HasPrefix(diff, "extra row"):
				kind, whole = "", false
			case !counts && kind == keep.DamagedRow: // all rows are samples
				kind = keep.DamagedRows
			}
			if sets, err := f.kernel.Sets(f.Program(noSet)); err != nil || counts && sets[0].Count < 0 {
				t.Skip("the kernel reports no numbers of rows")
			}
			before := f.Stats()
			tabletest.LoadNFT(t, strings.ReplaceAll(commands, "; ", "\n"))
			if got := strings.Join(f.diff(t), ", "); got != diff {
				t.Errorf("got differences\n%q, want\n%q", got, diff)
			}
			for range 10 {
				f.mustCheck(t)
			}
			after := f.Stats()
			if all := after.Rewrites != before.Rewrites; all != whole || !f.Scrubbed() {
				t.Errorf("everything was written: %v, want %v; all was compared: %v", all, whole, f.Scrubbed())
			}
			if kind == "" {
				return
			}
			if len(after.Repairs) != 1 || after.Repairs[kind] != 1 {
				t.Errorf("got repairs %v, want one of kind %s", after.Repairs, kind)
			}
			f.check(t)
			if got := f.diff(t); len(got) > 0 {
				t.Errorf("after the repair: got differences %q", got)
			}
		}
		t.Run(commands, func(t *testing.T) { test(t, true, kind, whole) })
		t.Run("without counts/"+commands, func(t *testing.T) { test(t, false, kind, whole) })
	}
}

// After a repair of single rows, a row that another program added in place of
// one that it deleted is gone, too. Only the number of rows shows it.
func TestReplacedRow(t *testing.T) {
	t.Parallel()
	f := newServing(t)
	if sets, err := f.kernel.Sets(f.Program(noSet)); err != nil || sets[0].Count < 0 {
		return // the kernel reports no numbers of rows
	}
	tabletest.LoadNFT(t, "delete element ip firewall ports { 80 }\nadd element ip firewall ports { 81 : accept }")
	for range 10 {
		f.mustCheck(t)
	}
	f.check(t)
}
