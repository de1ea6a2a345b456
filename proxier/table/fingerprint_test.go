package table

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

func TestCompareFingerprints(t *testing.T) {
	fingerprintOf := func(change func(*fingerprint)) *fingerprint {
		f := &fingerprint{
			table: nft.FoundTable{Handle: 1},
			sets:  map[string]uint64{"cluster-ips": 2},
			bases: map[string]nft.FoundChain{"nat-output": {Handle: 3, Policy: acceptPolicy}},
			rules: map[string][]nft.RuleID{"services": {{Handle: 4}, {Handle: 5}}},
		}
		change(f)
		return f
	}
	want := fingerprintOf(func(*fingerprint) {})
	for _, tt := range []struct {
		what   string // "" for no damage
		kind   DamageKind
		change func(*fingerprint)
	}{
		{"", "", func(*fingerprint) {}},
		{"", "", func(f *fingerprint) { f.rules["balance-1"] = []nft.RuleID{{Handle: 6}} }}, // its rules were not read before
		{"", "", func(f *fingerprint) { delete(f.rules, "services") }},                      // its rules were not read now
		{"the table was deleted", damagedTable, func(f *fingerprint) { f.table.Handle = 0 }},
		{"the table was replaced", damagedTable, func(f *fingerprint) { f.table.Handle = 9 }},
		{"the flags of the table are 0x1", damagedTable, func(f *fingerprint) { f.table.Flags = 1 }},
		{"set cluster-ips was deleted", damagedSet, func(f *fingerprint) { delete(f.sets, "cluster-ips") }},
		{"set cluster-ips was replaced", damagedSet, func(f *fingerprint) { f.sets["cluster-ips"] = 9 }},
		{"chain nat-output was deleted", damagedChain, func(f *fingerprint) { delete(f.bases, "nat-output") }},
		{"the policy of chain nat-output was changed", damagedChain, func(f *fingerprint) {
			f.bases["nat-output"] = nft.FoundChain{Handle: 3}
		}},
		{"the rules of chain services were changed", damagedRule, func(f *fingerprint) {
			f.rules["services"] = []nft.RuleID{{Handle: 4}}
		}},
	} {
		var got damage
		if d := fingerprintOf(tt.change).compare(want); d != nil {
			got = *d
		}
		if want := (damage{tt.kind, tt.what}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
