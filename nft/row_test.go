package nft_test

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// rangeRows returns rows of a set with one field and of a set with three
// fields. Their last fields are single addresses, prefixes and other ranges.
func rangeRows(f nft.Family, one, three *nft.Set) []nft.Row {
	lines := []string{ // in order, without overlaps
		"0.0.0.0/8", "10.0.0.1-10.0.0.9", "10.0.0.10-10.0.0.10", "10.128.0.0/9", "11.0.0.0/8", "172.16.0.0/12",
		"192.0.2.0/31", "192.0.2.3-192.0.2.4", "198.51.100.255-203.0.113.1", "255.255.255.0/25", "255.255.255.255/32",
	}
	if f == nft.IPv6 {
		lines = []string{
			"::/1", "8000::1-8000::9", "8000::a-8000::a", "fd00::/33", "fd01::/64", "fd01:0:0:1::/65",
			"fd02::1-fd02::ffff:0:1", "fd03::/127",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/121", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
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

// texts returns the rows of one set as nft lists its elements.
func texts(rows []nft.Row, set *nft.Set) []string {
	var out []string
	for _, r := range rows {
		if r.Set == set {
			out = append(out, asListed(strings.TrimPrefix(r.String(), set.Name+" ")))
		}
	}
	return out
}

// nft lists ranges as Row.String returns them. They can be deleted one by
// one.
func TestRanges(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		one := &nft.Set{Name: "one", Key: nft.Types(nft.TypeAddr(f)), Interval: true}
		three := sourceSet(f, "three")
		table := &nft.Table{Family: f, Name: "t", Sets: []*nft.Set{one, three}}
		rows := rangeRows(f, one, three)
		commitTable(t, c, table, rows...)
		b := nft.NewBatch(table)
		for len(rows) > 0 {
			listing := list(t)
			for _, s := range table.Sets {
				got, want := elements(t, listing, "set "+s.Name), texts(rows, s)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("set %s: got\n%s\nwant\n%s", s.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
			checkFile(t, listing, table, rows...)
			next := 6 // from the middle, then from the beginning
			if len(rows) <= next {
				next = 0
			}
			b.Reset()
			b.DeleteRow(rows[next])
			b.DeleteRow(rows[next+1])
			commit(t, c, b)
			rows = slices.Delete(rows, next, next+2)
		}
	})
}

// The kernel finds a row with the keys in its range.
func TestFindRanges(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		set := sourceSet(f, "sources")
		table := &nft.Table{Family: f, Name: "t", Sets: []*nft.Set{set}}
		rows := slices.DeleteFunc(rangeRows(f, &nft.Set{}, set), func(r nft.Row) bool { return r.Set != set })
		commitTable(t, c, table, rows...)
		for _, row := range rows {
			for _, key := range keysAround(f, row) {
				found, err := c.FindRows(table, []nft.Row{{Set: set, Key: key}})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rows {
					if got, want := found[0].Matches(r), includes(f, r, key); got != want {
						t.Errorf("row %s, key %v: got %v, want %v", r, key.Bytes(), got, want)
					}
				}
			}
		}
	})
}

// includes reports whether key is the key of a row of rangeRows, or in its
// range of keys.
func includes(f nft.Family, r nft.Row, key nft.Tuple) bool {
	first, last, k := r.Key.Bytes(), r.KeyEnd.Bytes(), key.Bytes()
	if len(last) == 0 {
		return r.Key == key
	}
	exact := len(first) - f.AddrLen()
	return bytes.Equal(first[:exact], k[:exact]) && bytes.Compare(first, k) <= 0 && bytes.Compare(k, last) <= 0
}

// keysAround returns the first and last key of a row of rangeRows, those before
// and after it, and one of another service.
func keysAround(f nft.Family, r nft.Row) []nft.Tuple {
	service := nft.Tuple{}.Addr(vip(f, 1)).Port(443)
	keys := []nft.Tuple{r.Key, nft.Tuple{}.Addr(vip(f, 2)).Port(443).Raw(r.Key.Bytes()[len(service.Bytes()):])}
	for _, end := range []nft.Tuple{r.Key, r.KeyEnd} {
		addr, ok := netip.AddrFromSlice(end.Bytes()[min(len(service.Bytes()), len(end.Bytes())):])
		if !ok {
			continue // a single key
		}
		for _, a := range []netip.Addr{addr, addr.Prev(), addr.Next()} {
			if a.IsValid() {
				keys = append(keys, service.Addr(a))
			}
		}
	}
	return keys
}

// nft does not list ranges of ports as prefixes. A range can end with the
// largest port.
func TestRangesOfPorts(t *testing.T) {
	c := connect(t)
	ports := &nft.Set{Name: "ports", Key: nft.Types(nft.TypeInetService), Interval: true}
	names := &nft.Set{
		Name: "names", Key: nft.Types(nft.TypeInetProto, nft.TypeInetService), Data: nft.Types(nft.TypeIPv4Addr),
		Interval: true,
	}
	table := &nft.Table{Family: nft.IPv4, Name: "t", Sets: []*nft.Set{ports, names}}
	var rows []nft.Row
	for i, p := range [][2]uint16{{0, 79}, {80, 80}, {1024, 2047}, {3000, 3001}, {32768, 65535}} {
		empty, proto := nft.Tuple{}, nft.Tuple{}.Proto(tcp)
		rows = append(rows, nft.Row{Set: ports, Key: empty.Port(p[0]), KeyEnd: empty.Port(p[1])})
		rows = append(rows, nft.Row{
			Set: names, Key: proto.Port(p[0]), KeyEnd: proto.Port(p[1]), Data: empty.Addr(vip(nft.IPv4, i)),
		})
	}
	commitTable(t, c, table, rows...)
	listing := list(t)
	got := strings.Join(elements(t, listing, "set ports"), " ")
	if want := "0-79 80 1024-2047 3000-3001 32768-65535"; got != want {
		t.Errorf("set ports: got %s, want %s", got, want)
	}
	named, want := elements(t, listing, "map names"), asListed("tcp . 0-79 : 10.96.0.0")
	if len(named) != 5 || named[0] != want {
		t.Errorf("map names: got %q, want 5 elements, the first %s", named, want)
	}
	checkFile(t, listing, table, rows...)
}

// The error for a row with two elements names the whole row.
func TestRefusedRange(t *testing.T) {
	c := connect(t)
	s := &nft.Set{Name: "sources", Key: nft.Types(nft.TypeIPv4Addr), Interval: true}
	table := &nft.Table{Family: nft.IPv4, Name: "t", Sets: []*nft.Set{s}}
	commitTable(t, c, table)
	for prefix, text := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "10.0.0.1/32": "10.0.0.1", "255.0.0.0/8": "255.0.0.0/8", "0.0.0.0/0": "0.0.0.0/0",
	} {
		b := nft.NewBatch(table)
		b.DeleteRow(nft.Row{Set: s}.Prefix(netip.MustParsePrefix(prefix)))
		checkProblem(t, c, b, "delete element sources "+text+": no such file or directory")
	}
}

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

// AddRow keeps a row with the same data. DeleteRow and AddRow in one batch
// change the data.
func TestExistingRows(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
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
			t.Errorf("got elements %q, want %s", got, want)
		}
		b.Reset()
		b.FlushSet(s.Name)
		commit(t, c, b)
		if got := elements(t, list(t), "map services"); len(got) != 0 {
			t.Errorf("after FlushSet: got elements %q, want none", got)
		}
	})
}

// The batch refuses rows that do not fit their set, because the kernel would
// accept some of them as other rows.
func TestInvalidRows(t *testing.T) {
	c := connect(t)
	first, second := vip(nft.IPv4, 1), vip(nft.IPv4, 2)
	v4, v6 := nft.Tuple{}.Addr(first), nft.Tuple{}.Addr(vip(nft.IPv6, 1))
	key := v4.Proto(tcp).Port(80)
	verdicts := serviceMap(nft.IPv4)
	serviceText := verdicts.Key.String()
	addr := nft.TypeIPv4Addr
	data := &nft.Set{Name: "data", Key: nft.Types(addr), Data: nft.Types(addr, nft.TypeInetService)}
	endpointText := data.Data.String()
	pairs := &nft.Set{Name: "pairs", Key: nft.Types(addr, addr), Interval: true}
	table := &nft.Table{
		Family: nft.IPv4, Name: "t", Sets: []*nft.Set{verdicts, data, pairs}, Chains: []*nft.Chain{{Name: "one"}},
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
			"range without Interval", nft.Row{Set: verdicts, Key: key, KeyEnd: key},
			"services 10.96.0.1 . tcp . 80", "key is a range, but the set does not have Interval",
		},
		{
			"end with other fields", nft.Row{Set: pairs, Key: v4.Addr(first), KeyEnd: v4},
			"pairs 10.96.0.1 . 10.96.0.1", "key end of 4 bytes does not match ipv4_addr . ipv4_addr",
		},
		{
			"range of all fields",
			nft.Row{Set: pairs, Key: v4.Addr(first), KeyEnd: nft.Tuple{}.Addr(second).Addr(second)},
			"pairs 10.96.0.1 . 10.96.0.1-10.96.0.2", "key end differs in more than the last field",
		},
		{
			"end before key", nft.Row{Set: pairs, Key: v4.Addr(second), KeyEnd: v4.Addr(first)},
			"pairs 10.96.0.1 . 10.96.0.2-10.96.0.1", "key end is less than the key",
		},
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
		{Set: b, Key: port(1), KeyEnd: port(2)}, {Set: b, Key: port(1), KeyEnd: port(3)},
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
