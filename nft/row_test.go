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

// The batch refuses rows that do not fit their set, because the kernel would
// accept some of them as other rows.
func TestInvalidRows(t *testing.T) {
	c := connect(t)
	v4, v6 := nft.Tuple{}.Addr(vip(nft.IPv4, 1)), nft.Tuple{}.Addr(vip(nft.IPv6, 1))
	verdicts := serviceMap(nft.IPv4)
	serviceText := verdicts.Key.String()
	addr := nft.TypeIPv4Addr
	data := &nft.Set{Name: "data", Key: nft.Types(addr), Data: nft.Types(addr, nft.TypeInetService)}
	endpointText := data.Data.String()
	table := &nft.Table{
		Family: nft.IPv4, Name: "t", Sets: []*nft.Set{verdicts, data}, Chains: []*nft.Chain{{Name: "one"}},
	}
	commitTable(t, c, table)
	before := list(t)
	tests := []struct {
		name   string
		row    nft.Row
		object string
		reason string
	}{
		{"no key", nft.Row{Set: verdicts}, "services 0x", "key of 0 bytes does not match " + serviceText},
		{
			"short key", nft.Row{Set: verdicts, Key: v4.Proto(tcp)},
			"services 0x0a60000106000000", "key of 8 bytes does not match " + serviceText,
		},
		{
			"another family", nft.Row{Set: data, Key: v6, Data: v4.Port(80)},
			"data 0xfd000096000000000000000000000001", "key of 16 bytes does not match ipv4_addr",
		},
		{"no data", nft.Row{Set: data, Key: v4}, "data 10.96.0.1", "data of 0 bytes does not match " + endpointText},
		{
			"long chain name", service(verdicts, nft.IPv4, 1, strings.Repeat("x", 256)),
			"services 10.96.0.1 . tcp . 80", "chain name of the verdict is longer than 255 bytes",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := nft.NewBatch(table)
			b.Tag(1)
			b.AddRow(service(verdicts, nft.IPv4, 1, "one"))
			b.Tag(2)
			b.AddRow(tt.row)
			p := checkProblem(t, c, b, "add element "+tt.object+": invalid argument: "+tt.reason)
			if p.Tag != 2 {
				t.Errorf("got tag %d, want 2", p.Tag)
			}
		})
	}
	b := nft.NewBatch(table)
	b.DeleteRow(nft.Row{Set: data, Key: v6})
	checkProblem(t, c, b, "delete element data 0xfd000096000000000000000000000001: "+
		"invalid argument: key of 16 bytes does not match ipv4_addr")
	checkUnchanged(t, before)
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
