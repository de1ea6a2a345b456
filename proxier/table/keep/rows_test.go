package keep

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

func TestDiffRows(t *testing.T) {
	set := &nft.Set{Name: "s"}
	rows := func(keys ...uint32) (rows []nft.Row) {
		for _, k := range keys {
			rows = append(rows, nft.Row{Set: set, Key: nft.Tuple{}.Integer(k)})
		}
		return rows
	}
	changed := rows(2)
	changed[0].Data = nft.Tuple{}.Integer(7)
	for _, tt := range []struct {
		name                          string
		before, after, removed, added []nft.Row
	}{
		{"both empty", nil, nil, nil, nil},
		{"all added", nil, rows(1, 2), nil, rows(1, 2)},
		{"all removed", rows(1, 2), nil, rows(1, 2), nil},
		{"equal", rows(1, 2), rows(1, 2), nil, nil},
		{"another order", rows(1, 2, 3), rows(3, 1, 2), nil, nil},
		{"the first is removed", rows(1, 2, 3), rows(2, 3), rows(1), nil},
		{"one is replaced", rows(1, 2, 3), rows(1, 4, 3), rows(2), rows(4)},
		{"the data of one differs", rows(1, 2), append(rows(1), changed...), rows(2), changed},
	} {
		removed, added := diffRows(tt.before, tt.after)
		if !slices.Equal(removed, tt.removed) || !slices.Equal(added, tt.added) {
			t.Errorf("%s: got removed %v, added %v; want %v, %v", tt.name, removed, added, tt.removed, tt.added)
		}
	}
}

// The rows of an owner that is new, or that is deleted, are not compared.
func TestDiffRowsWithoutBefore(t *testing.T) {
	rows := make([]nft.Row, 1000)
	for i := range rows {
		rows[i].Key = nft.Tuple{}.Integer(uint32(i))
	}
	if n := testing.AllocsPerRun(10, func() { diffRows(nil, rows); diffRows(rows, nil) }); n > 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// Where an owner has fewer rows in several places, the rows after them are not
// looked up.
func TestDiffShiftedRows(t *testing.T) {
	set := &nft.Set{Name: "s"}
	rows := func(places, each int) (all []nft.Row) {
		for p := range places {
			for i := range each {
				all = append(all, nft.Row{Set: set, Key: nft.Tuple{}.Integer(uint32(p)).Integer(uint32(i))})
			}
		}
		return all
	}
	many, few := rows(3, 1000), rows(3, 999)
	for _, tt := range []struct{ before, after []nft.Row }{{many, few}, {few, many}} {
		removed, added := diffRows(tt.before, tt.after)
		if len(removed)+len(added) != 3 {
			t.Errorf("got %d removed, %d added; want 3 in all", len(removed), len(added))
		}
		if n := testing.AllocsPerRun(10, func() { diffRows(tt.before, tt.after) }); n > 20 {
			t.Errorf("got %v allocations, want few", n)
		}
	}
}

// However rows are changed and moved, the differences lead from the rows before
// to those after.
func TestDiffRandomRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	sets := []*nft.Set{{Name: "a"}, {Name: "b"}}
	random := func() []nft.Row {
		var all []nft.Row
		for k := range uint32(12) {
			row := nft.Row{Set: sets[k%2], Key: nft.Tuple{}.Integer(k), Data: nft.Tuple{}.Integer(r.Uint32N(2))}
			if r.IntN(3) > 0 {
				all = append(all, row)
			}
		}
		if r.IntN(2) == 0 {
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
		return all
	}
	minus := func(from, rows []nft.Row) []nft.Row {
		return slices.DeleteFunc(slices.Clone(from), func(r nft.Row) bool { return slices.Contains(rows, r) })
	}
	for range 20_000 {
		before, after := random(), random()
		removed, added := diffRows(before, after)
		if !sameRows(removed, minus(before, after)) || !sameRows(added, minus(after, before)) {
			t.Fatalf("before %v, after %v: got removed %v, added %v", before, after, removed, added)
		}
	}
}

// sameRows reports whether two lists have the same rows, in any order.
func sameRows(a, b []nft.Row) bool {
	return slices.Equal(slices.SortedFunc(slices.Values(a), nft.Row.Compare),
		slices.SortedFunc(slices.Values(b), nft.Row.Compare))
}

func TestSharedRows(t *testing.T) {
	set := &nft.Set{Name: "cluster-ips"}
	row := func(k uint32) nft.Row { return nft.Row{Set: set, Key: nft.Tuple{}.Integer(k)} }
	key := func(k uint32) rowKey { return rowKey{set, nft.Tuple{}.Integer(k)} }
	have := sharedRows{key(1): {1, 9}, key(2): {2, 9}, key(3): {1, 9}}
	change := make(sharedRows)
	for _, add := range []struct {
		key uint32
		n   int32
		tag uint32
	}{
		{1, -1, 10}, // its last owner removes it
		{2, -1, 10}, // one of two owners removes it
		{3, -1, 10}, // it moves to another owner
		{3, 1, 11},  //
		{5, 1, 11},  // it is new
		{5, 1, 12},  // another owner adds it too
		{4, 1, 13},  // it is new
		{6, 1, 13},  // it is added
		{6, -1, 13}, // and removed again
	} {
		change.add(taggedRow{row(add.key), add.tag}, add.n)
	}
	removed, added := change.rows(have)
	if want := []taggedRow{{row(1), 10}}; !slices.Equal(removed, want) {
		t.Errorf("got removed %v, want %v", removed, want)
	}
	if want := []taggedRow{{row(4), 13}, {row(5), 12}}; !slices.Equal(added, want) {
		t.Errorf("got added %v, want %v", added, want)
	}
	have.apply(change)
	want := sharedRows{key(2): {1, 10}, key(3): {1, 11}, key(4): {1, 13}, key(5): {2, 12}}
	if !maps.Equal(have, want) {
		t.Errorf("got counts %v, want %v", have, want)
	}
}
