package nft_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// rangeRows are rows of a set of one field, and of one with three, with single keys, prefixes and other ranges.
func rangeRows(f nft.Family, one, three *nft.Set) []nft.Row {
	lines := []string{ // prefixes and ranges, in order and apart
		"0.0.0.0/8", "10.0.0.1-10.0.0.9", "10.0.0.10-10.0.0.10", "10.128.0.0/9", "11.0.0.0/8", "172.16.0.0/12",
		"192.0.2.0/31", "192.0.2.3-192.0.2.4", "198.51.100.255-203.0.113.1", "255.255.255.0/25", "255.255.255.255/32",
	}
	if f == nft.IPv6 {
		lines = []string{
			"::/1", "8000::1-8000::9", "8000::a-8000::a", "fd00::/33", "fd01::/64", "fd01:0:0:1::/65", "fd02::1-fd02::ffff:0:1",
			"fd03::/127", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/121", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
		}
	}
	vip := nft.Tuple{}.Addr(vip(f, 1)).Port(443)
	var rows []nft.Row
	for _, line := range lines {
		for _, r := range []nft.Row{{Set: one}, {Set: three, Key: vip}} {
			if first, last, ok := strings.Cut(line, "-"); ok {
				r.KeyEnd = r.Key.Addr(netip.MustParseAddr(last))
				r.Key = r.Key.Addr(netip.MustParseAddr(first))
			} else {
				r = r.Prefix(netip.MustParsePrefix(line))
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// texts returns rows of one set as their elements read.
func texts(rows []nft.Row, set *nft.Set) []string {
	var out []string
	for _, r := range rows {
		if r.Set == set {
			out = append(out, asListed(strings.TrimPrefix(r.String(), set.Name+" ")))
		}
	}
	return out
}

// Ranges list as they read, and can be deleted one by one.
func TestRanges(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		addr := nft.TypeAddr(f)
		one := &nft.Set{Name: "one", Key: nft.Types(addr), Interval: true}
		three := &nft.Set{Name: "three", Key: nft.Types(addr, nft.TypeInetService, addr), Interval: true}
		table := &nft.Table{Family: f, Name: "t", Sets: []*nft.Set{one, three}}
		rows := rangeRows(f, one, three)
		c := open(t)
		commitTable(t, c, table, rows...)
		b := nft.NewBatch(table)
		for len(rows) > 0 {
			listing := list(t)
			for _, s := range table.Sets {
				got, want := elements(t, listing, "set "+s.Name), texts(rows, s)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("%s has\n%s\nwant\n%s", s.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
			load(t, print(t, table, rows...))
			if loaded := list(t); loaded != listing {
				t.Fatalf("what was written loads as\n%s\nwant\n%s", loaded, listing)
			}
			gone := 6 // from the middle, then from the beginning
			if len(rows) <= gone {
				gone = 0
			}
			b.Reset()
			b.DeleteRow(rows[gone])
			b.DeleteRow(rows[gone+1])
			commit(t, c, b)
			rows = slices.Delete(rows, gone, gone+2)
		}
	})
}

// Ranges of ports, which nft does not write as prefixes, up to the largest.
func TestRangesOfPorts(t *testing.T) {
	newNamespace(t)
	ports := &nft.Set{Name: "ports", Key: nft.Types(nft.TypeInetService), Interval: true}
	names := &nft.Set{Name: "names", Key: nft.Types(nft.TypeInetProto, nft.TypeInetService), Data: nft.Types(nft.TypeIPv4Addr), Interval: true}
	table := &nft.Table{Family: nft.IPv4, Name: "t", Sets: []*nft.Set{ports, names}}
	var rows []nft.Row
	for i, p := range [][2]uint16{{0, 79}, {80, 80}, {1024, 2047}, {3000, 3001}, {32768, 65535}} {
		rows = append(rows, nft.Row{Set: ports, Key: nft.Tuple{}.Port(p[0]), KeyEnd: nft.Tuple{}.Port(p[1])})
		rows = append(rows, nft.Row{Set: names, Key: nft.Tuple{}.Proto(tcp).Port(p[0]), KeyEnd: nft.Tuple{}.Proto(tcp).Port(p[1]), Data: nft.Tuple{}.Addr(vip(nft.IPv4, i))})
	}
	c := open(t)
	commitTable(t, c, table, rows...)
	listing := list(t)
	if got, want := elements(t, listing, "set ports"), "0-79 80 1024-2047 3000-3001 32768-65535"; strings.Join(got, " ") != want {
		t.Errorf("listed as %s, want %s", got, want)
	}
	if got, want := elements(t, listing, "map names"), asListed("tcp . 0-79 : 10.96.0.0"); len(got) != 5 || got[0] != want {
		t.Errorf("listed as %s, want %s", got, want)
	}
	load(t, print(t, table, rows...))
	if loaded := list(t); loaded != listing {
		t.Errorf("what was written loads as\n%s\nwant\n%s", loaded, listing)
	}
}

// A refused row of a set whose rows are two elements is named as a whole.
func TestRefusedRange(t *testing.T) {
	newNamespace(t)
	c := open(t)
	s := &nft.Set{Name: "sources", Key: nft.Types(nft.TypeIPv4Addr), Interval: true}
	table := &nft.Table{Family: nft.IPv4, Name: "t", Sets: []*nft.Set{s}}
	commitTable(t, c, table)
	for _, tt := range []struct{ prefix, want string }{
		{"10.0.0.0/8", "delete element sources 10.0.0.0/8: no such file or directory"},
		{"10.0.0.1/32", "delete element sources 10.0.0.1: no such file or directory"},
		{"255.0.0.0/8", "delete element sources 255.0.0.0/8: no such file or directory"},
		{"0.0.0.0/0", "delete element sources 0.0.0.0/0: no such file or directory"},
	} {
		b := nft.NewBatch(table)
		b.DeleteRow(nft.Row{Set: s}.Prefix(netip.MustParsePrefix(tt.prefix)))
		if p := refused(t, c.Commit(b)); len(p) != 1 || p[0].String() != tt.want {
			t.Errorf("got %v, want %s", p, tt.want)
		}
	}
}

// Comments are kept as they are said to be, and what nft lists of them loads again.
func TestComments(t *testing.T) {
	newNamespace(t)
	x := strings.Repeat("x", 200)
	tests := []struct{ comment, want string }{
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
	}
	for _, tt := range tests {
		s := &nft.Set{Name: "s", Key: nft.Types(nft.TypeIPv4Addr), Comment: tt.comment}
		r := nft.Row{Set: s, Key: nft.Tuple{}.Addr(vip(nft.IPv4, 1)), Comment: tt.comment}
		table := &nft.Table{Family: nft.IPv4, Name: "t", Comment: tt.comment, Sets: []*nft.Set{s}, Chains: []*nft.Chain{
			{Name: "c", Comment: tt.comment, Rules: []nft.Rule{nft.NewRule(nft.Drop()).WithComment(tt.comment)}},
		}}
		load(t, "")
		commitTable(t, open(t), table, r)
		listing := list(t)
		want := 5 // of the table, the set, the element, the chain and the rule
		if tt.want == "" {
			want = 0
		}
		if n := strings.Count(listing, `comment "`+tt.want+`"`); n != want || strings.Count(listing, "comment") != want {
			t.Errorf("comment %q is listed %d times, want %d:\n%s", tt.comment, n, want, listing)
			continue
		}
		load(t, listing)
		if again := list(t); again != listing {
			t.Errorf("the listing loads as\n%s\nwant\n%s", again, listing)
		}
		load(t, print(t, table, r))
		if loaded := list(t); loaded != listing {
			t.Errorf("what was written loads as\n%s\nwant\n%s", loaded, listing)
		}
	}
}

// A row that is there with the same data stays as it is, one that is deleted and added in one transaction changes.
func TestRowsThatAreThere(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		c := open(t)
		b, s := newServices(t, c, f)
		b.AddRow(service(s, f, 1, "one"))
		b.AddRow(service(s, f, 1, "one"))
		commit(t, c, b)
		b.Reset()
		b.AddRow(service(s, f, 1, "one"))
		commit(t, c, b)
		b.Reset()
		b.DeleteRow(service(s, f, 1, "one"))
		b.AddRow(service(s, f, 1, "two"))
		commit(t, c, b)
		got := elements(t, list(t), "map services")
		if want := asListed(vip(f, 1).String() + " . tcp . 80 : goto two"); len(got) != 1 || got[0] != want {
			t.Errorf("got %v, want %s", got, want)
		}
		b.Reset()
		b.FlushSet(s.Name)
		commit(t, c, b)
		if got := elements(t, list(t), "map services"); len(got) != 0 {
			t.Errorf("got %v, want nothing", got)
		}
	})
}

// Rows that do not fit their set are refused with their names before anything is sent: the kernel would take many of them for others.
func TestImpossibleRows(t *testing.T) {
	newNamespace(t)
	c := open(t)
	v4, v6 := nft.Tuple{}.Addr(vip(nft.IPv4, 1)), nft.Tuple{}.Addr(vip(nft.IPv6, 1))
	key := v4.Proto(tcp).Port(80)
	verdicts := services(nft.IPv4)
	data := &nft.Set{Name: "data", Key: nft.Types(nft.TypeIPv4Addr), Data: nft.Types(nft.TypeIPv4Addr, nft.TypeInetService)}
	sources := &nft.Set{Name: "sources", Key: nft.Types(nft.TypeIPv4Addr, nft.TypeIPv4Addr), Interval: true}
	table := &nft.Table{Family: nft.IPv4, Name: "t", Sets: []*nft.Set{verdicts, data, sources}, Chains: []*nft.Chain{{Name: "one"}}}
	commitTable(t, c, table)
	before := list(t)
	tests := []struct {
		name string
		row  nft.Row
		want string
	}{
		{"no key", nft.Row{Set: verdicts}, "services 0x: invalid argument: key of 0 bytes in a set of ipv4_addr . inet_proto . inet_service"},
		{"short key", nft.Row{Set: verdicts, Key: v4.Proto(tcp)}, "services 0x0a60000106000000: invalid argument: key of 8 bytes in a set of ipv4_addr . inet_proto . inet_service"},
		{"key of the other family", nft.Row{Set: data, Key: v6, Data: v4.Port(80)}, "data 0xfd000096000000000000000000000001: invalid argument: key of 16 bytes in a set of ipv4_addr"},
		{"no data", nft.Row{Set: data, Key: v4}, "data 10.96.0.1: invalid argument: data of 0 bytes in a map to ipv4_addr . inet_service"},
		{"range in a set without", nft.Row{Set: verdicts, Key: key, KeyEnd: key}, "services 10.96.0.1 . tcp . 80: invalid argument: range in a set without ranges"},
		{"end of other fields", nft.Row{Set: sources, Key: v4.Addr(vip(nft.IPv4, 1)), KeyEnd: v4}, "sources 10.96.0.1 . 10.96.0.1: invalid argument: end of 4 bytes in a set of ipv4_addr . ipv4_addr"},
		{"range of all fields", nft.Row{Set: sources, Key: v4.Addr(vip(nft.IPv4, 1)), KeyEnd: nft.Tuple{}.Addr(vip(nft.IPv4, 2)).Addr(vip(nft.IPv4, 2))}, "sources 10.96.0.1 . 10.96.0.1-10.96.0.2: invalid argument: range in more than the last field"},
		{"backward range", nft.Row{Set: sources, Key: v4.Addr(vip(nft.IPv4, 2)), KeyEnd: v4.Addr(vip(nft.IPv4, 1))}, "sources 10.96.0.1 . 10.96.0.2-10.96.0.1: invalid argument: range ends before it begins"},
		{"name of the chain too long", nft.Row{Set: verdicts, Key: key, Verdict: nft.VerdictGoto(strings.Repeat("x", 256))}, "services 10.96.0.1 . tcp . 80: invalid argument: name of the chain is longer than 255 bytes"},
	}
	for _, tt := range tests {
		b := nft.NewBatch(table)
		b.Tag(1)
		b.AddRow(service(verdicts, nft.IPv4, 1, "one"))
		b.Tag(2)
		b.AddRow(tt.row)
		problems := refused(t, c.Commit(b))
		if want := "add element " + tt.want; len(problems) != 1 || problems[0].String() != want || problems[0].Tag != 2 {
			t.Errorf("%s:\n got %v\nwant %s", tt.name, problems, want)
		}
	}
	b := nft.NewBatch(table)
	b.DeleteRow(nft.Row{Set: data, Key: v6})
	if p := refused(t, c.Commit(b)); p[0].Op != "delete element" {
		t.Errorf("delete an impossible row: %v", p)
	}
	if after := list(t); after != before {
		t.Errorf("something was carried out:\n%s", after)
	}
}

func TestCompareRows(t *testing.T) {
	a, b := &nft.Set{Name: "a", Key: nft.Types(nft.TypeInetService)}, &nft.Set{Name: "b", Key: nft.Types(nft.TypeInetService)}
	port := func(p uint16) nft.Tuple { return nft.Tuple{}.Port(p) }
	rows := []nft.Row{
		{Set: a, Key: port(2)}, {Set: a, Key: port(256)}, {Set: b, Key: port(1)}, {Set: b, Key: port(1), KeyEnd: port(2)},
		{Set: b, Key: port(1), KeyEnd: port(3)}, {Set: b, Key: port(0).Port(0)},
	}
	for i, r := range rows {
		for j, o := range rows {
			if got := r.Compare(o); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("row %d to row %d: %d", i, j, got)
			}
		}
	}
}
