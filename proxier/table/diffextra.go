package table

import (
	"fmt"

	"github.com/nftproxy/nftproxy/nft"
)

// extraRows finds rows of the next set that are not desired.
func (d *Diff) extraRows(step *DiffStep) error {
	set := d.set(d.sets[0])
	if set != nil && d.extra == nil {
		if err := d.listSet(step, set); err != nil {
			return err
		}
	}
	n := min(len(d.extra), maxDiffRows)
	if err := d.lookUp(step, d.extra[:n]); err != nil {
		return err
	}
	if d.extra = d.extra[n:]; len(d.extra) == 0 {
		d.cursor, d.sets, d.extra = setCursor+d.sets[0], d.sets[1:], nil
	}
	return nil
}

// set returns a set of the program, nil if it does not have it any more.
func (d *Diff) set(name string) *nft.Set {
	for _, s := range d.table.committed.program.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// listSet lists the rows of a small set. For a large one, it compares the
// number of rows if the kernel reports it.
func (d *Diff) listSet(step *DiffStep, set *nft.Set) (err error) {
	t := d.table
	sets, err := t.kernel.Sets(t.committed.program)
	if err != nil {
		return err
	}
	want, count := t.committed.rows[set.Name], -1
	for _, s := range sets {
		if s.Name == set.Name {
			count = s.Count
		}
	}
	if max(want, count) <= maxDumpedRows {
		d.extra, err = t.kernel.Rows(t.committed.program, set)
		return err
	}
	if extra := count - (want - d.missing[set.Name]); count >= 0 && extra > 0 {
		step.add(Extra, fmt.Sprintf("%d rows of set %s, which is too large to list them", extra, set.Name))
	}
	return nil
}

// lookUp finds the rows that are not desired. A row that was deleted meanwhile
// is not a difference.
func (d *Diff) lookUp(step *DiffStep, rows []nft.Row) error {
	expected, err := d.table.Expected(nil)
	if err != nil {
		return err
	}
	var extra []nft.Row
	for _, r := range rows {
		want, err := d.table.wantedRow(expected, r)
		if err != nil {
			return err
		}
		if want.Set == nil || want.Key != r.Key {
			extra = append(extra, r)
		}
	}
	if len(extra) == 0 {
		return nil
	}
	now, err := d.table.kernel.FindRows(d.table.committed.program, extra)
	for _, r := range now {
		if r.Set != nil {
			step.add(Extra, rowText(r))
		}
	}
	return err
}

// wantedRow returns the desired row with the key of another one. Its Set is nil
// if there is none.
func (t *Table) wantedRow(expected *Expected, r nft.Row) (nft.Row, error) {
	switch {
	case r.Set == t.rules.ReservedIDsSet():
		want := t.rules.ReservedIDs(t.committed.reservedIDs)
		if t.committed.reservedIDs == 0 {
			want = nft.Row{}
		}
		return want, nil
	case t.rules.IsShared(r.Set):
		if t.committed.shared[sharedKey{r.Set, r.Key}] == 0 {
			r = nft.Row{}
		}
		return r, nil
	}
	return expected.Row(r.Set, r.Key)
}
