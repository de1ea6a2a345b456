package nft_test

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// The listing of nft has comments as the kernel stores them, and loads again.
func TestComments(t *testing.T) {
	x := strings.Repeat("x", 200)
	for _, tt := range []struct{ comment, want string }{
		{"", ""},
		{"default/web:http", "default/web:http"},
		{"grün & 緑 😀", "grün & 緑 😀"},
		{`say "hello" \ 'there' \n`, `say 'hello' \ 'there' \n`},
		{"a\x00b", "a b"},
		{"tab\tand # { } ; $x", "tab\tand # { } ; $x"},
		{x[:127], x[:127]},
		{x, x[:127]},
		{x[:126] + "ü", x[:126]},
		{x[:125] + "üx", x[:125] + "ü"},
		{x[:124] + "😀", x[:124]},
	} {
		c := connect(t)
		s := addrSet(nft.IPv4, "s")
		s.Comment = tt.comment
		r := nft.Row{Set: s, Key: nft.Tuple{}.Addr(vip(nft.IPv4, 1)), Comment: tt.comment}
		rules := []nft.Rule{nft.NewRule(nft.Drop()).WithComment(tt.comment)}
		table := &nft.Table{
			Family: nft.IPv4, Name: "t", Comment: tt.comment, Sets: []*nft.Set{s},
			Chains: []*nft.Chain{{Name: "c", Rules: rules}},
		}
		commitTable(t, c, table, r)
		listing := list(t)
		want := 4 // of the table, the set, the element and the rule
		if tt.want == "" {
			want = 0
		}
		got, all := strings.Count(listing, `comment "`+tt.want+`"`), strings.Count(listing, "comment")
		if got != want || all != want {
			t.Errorf("comment %q: got %d of %d comments %q, want %d:\n%s", tt.comment, got, all, tt.want, want, listing)
			continue
		}
		load(t, listing)
		checkUnchanged(t, listing)
		checkFile(t, listing, table, r)
	}
}

func TestCompareRows(t *testing.T) {
	key := nft.Types(nft.TypeInetService)
	a, b := &nft.Set{Name: "a", Key: key}, &nft.Set{Name: "b", Key: key}
	port := func(p uint16) nft.Tuple { return nft.Tuple{}.Port(p) }
	rows := []nft.Row{
		{Set: a, Key: port(2)}, {Set: a, Key: port(256)}, {Set: b, Key: port(1)},
		{Set: b, Key: port(0).Port(0)},
	}
	for i, r := range rows {
		for j, o := range rows {
			if got := r.Compare(o); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("Compare of rows %d and %d: got %d", i, j, got)
			}
		}
	}
}
