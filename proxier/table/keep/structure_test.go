package keep

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

func TestCompareStructures(t *testing.T) {
	hook := &nft.Hook{Type: nft.ChainTypeNAT, Point: nft.Output}
	drops := *hook
	drops.Drop = true
	ips, output := object{kindSet, "cluster-ips"}, object{kindChain, "nat-output"}
	counter, added := object{kindCounter, "drops"}, object{kindSet, "sticky-clients-1"}
	structureOf := func(change func(*structure)) *structure {
		s := &structure{table: nft.FoundTable{Handle: 1}, objects: map[object]foundObject{
			ips:     {handle: 2, set: nft.FoundSet{Name: ips.name}},
			output:  {handle: 3, chain: nft.Chain{Hook: hook}},
			counter: {handle: 4},
		}}
		change(s)
		return s
	}
	before := structureOf(func(*structure) {})
	table := &nft.Table{
		Family: nft.IPv4, Name: "kube-proxy", Sets: []*nft.Set{{Name: ips.name}},
		Counters: []*nft.Counter{{Name: counter.name}}, Chains: []*nft.Chain{{Name: output.name, Hook: hook}},
	}
	for _, tt := range []struct {
		what, object string // "" for no difference
		kind         DamageKind
		change       func(*structure)
	}{
		{"", "", "", func(*structure) {}},
		{"", "", "", func(s *structure) { s.objects[added] = foundObject{handle: 9} }},
		{"the table was deleted", "missing table ip kube-proxy", DamagedTable, func(s *structure) {
			s.table.Handle = 0
		}},
		{"the table was replaced", "changed table ip kube-proxy", DamagedTable, func(s *structure) {
			s.table.Handle = 9
		}},
		{"the flags of the table are 0x1", "changed flags of the table", DamagedTable, func(s *structure) {
			s.table.Flags = 1
		}},
		{"set cluster-ips was deleted", "missing set cluster-ips", DamagedSet, func(s *structure) {
			delete(s.objects, ips)
		}},
		{"set cluster-ips was replaced", "changed set cluster-ips", DamagedSet, func(s *structure) {
			s.objects[ips] = foundObject{handle: 9, set: nft.FoundSet{Name: ips.name}}
		}},
		{"the type of set cluster-ips was changed", "changed type of set cluster-ips", DamagedSet, func(s *structure) {
			s.objects[ips] = foundObject{handle: 2}
		}},
		{"counter drops was deleted", "missing counter drops", DamagedCounter, func(s *structure) {
			delete(s.objects, counter)
		}},
		{"chain nat-output was deleted", "missing chain nat-output", DamagedChain, func(s *structure) {
			delete(s.objects, output)
		}},
		{"the policy of chain nat-output was changed", "changed chain nat-output", DamagedChain, func(s *structure) {
			s.objects[output] = foundObject{handle: 3, chain: nft.Chain{Hook: &drops}}
		}},
	} {
		var object string
		var got Damage
		for _, d := range structureOf(tt.change).compare(table, before) {
			object, got = object+string(d.Kind)+" "+d.Object, d.damage
		}
		if want := (Damage{tt.kind, tt.what}); got != want || object != tt.object {
			t.Errorf("got %q, %q, want %q, %q", got, object, want, tt.object)
		}
	}
}
