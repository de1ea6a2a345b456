package table

import (
	"maps"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

func TestSharedChange(t *testing.T) {
	set := &nft.Set{Name: "cluster-ips"}
	row := func(k uint32) nft.Row { return nft.Row{Set: set, Key: nft.Tuple{}.Integer(k)} }
	key := func(k uint32) rowKey { return rowKey{set, nft.Tuple{}.Integer(k)} }
	have := sharedRows{key(1): 1, key(2): 2, key(3): 1}
	change := make(sharedChange)
	for _, add := range []struct {
		key   uint32
		n     int
		tag   uint32
		first bool
	}{
		{1, -1, 10, true},  // its last owner removes it
		{2, -1, 10, true},  // one of two owners removes it
		{3, -1, 10, true},  // it moves to another owner
		{3, 1, 11, false},  //
		{5, 1, 11, true},   // it is new
		{5, 1, 12, false},  // another owner adds it too
		{4, 1, 13, true},   // it is new
		{6, 1, 13, true},   // it is added
		{6, -1, 13, false}, // and removed again
	} {
		if first := change.add(row(add.key), add.n, add.tag); first != add.first {
			t.Errorf("add %+v: got first %v", add, first)
		}
	}
	removed, added := change.rows(have)
	if want := []taggedRow{{row(1), 10}}; !slices.Equal(removed, want) {
		t.Errorf("got removed %v, want %v", removed, want)
	}
	if want := []taggedRow{{row(4), 13}, {row(5), 12}}; !slices.Equal(added, want) {
		t.Errorf("got added %v, want %v", added, want)
	}
	change.apply(have)
	if want := (sharedRows{key(2): 1, key(3): 1, key(4): 1, key(5): 2}); !maps.Equal(have, want) {
		t.Errorf("got counts %v, want %v", have, want)
	}
}
