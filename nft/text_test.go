package nft

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPrefixBits(t *testing.T) {
	tests := []struct {
		first, last string
		bits        int
		ok          bool
	}{
		{"10.0.0.1", "10.0.0.1", 32, true},
		{"10.0.0.0", "10.0.0.1", 31, true},
		{"10.0.0.1", "10.0.0.2", 0, false},
		{"10.0.0.0", "10.0.0.2", 0, false},
		{"10.0.0.0", "10.0.0.255", 24, true},
		{"10.0.0.0", "10.0.0.254", 0, false},
		{"10.0.0.1", "10.0.0.255", 0, false},
		{"10.0.0.0", "10.127.255.255", 9, true},
		{"10.128.0.0", "10.255.255.255", 9, true},
		{"10.64.0.0", "10.191.255.255", 0, false},
		{"10.0.1.0", "10.255.255.255", 0, false},
		{"0.0.0.0", "255.255.255.255", 0, true},
		{"0.0.0.0", "127.255.255.255", 1, true},
		{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", 32, true},
		{"2001:db8::", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff", 33, true},
		{"2001:db8::1", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff", 0, false},
	}
	for _, tt := range tests {
		first, last := netip.MustParseAddr(tt.first).AsSlice(), netip.MustParseAddr(tt.last).AsSlice()
		if bits, ok := prefixBits(first, last); bits != tt.bits || ok != tt.ok {
			t.Errorf("%s-%s: %d, %v; want %d, %v", tt.first, tt.last, bits, ok, tt.bits, tt.ok)
		}
	}
}

func TestLastAddr(t *testing.T) {
	tests := []struct{ prefix, last string }{
		{"0.0.0.0/0", "255.255.255.255"},
		{"0.0.0.0/1", "127.255.255.255"},
		{"10.0.0.0/8", "10.255.255.255"},
		{"10.128.0.0/9", "10.255.255.255"},
		{"192.0.2.4/30", "192.0.2.7"},
		{"192.0.2.4/31", "192.0.2.5"},
		{"192.0.2.4/32", "192.0.2.4"},
		{"::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"2001:db8::/33", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff"},
		{"2001:db8::/64", "2001:db8::ffff:ffff:ffff:ffff"},
		{"2001:db8::1/128", "2001:db8::1"},
	}
	for _, tt := range tests {
		if got := lastAddr(netip.MustParsePrefix(tt.prefix)); got.String() != tt.last {
			t.Errorf("%s: %s, want %s", tt.prefix, got, tt.last)
		}
	}
}

func TestIntervalText(t *testing.T) {
	addr := func(s string) Tuple { return Tuple{}.Addr(netip.MustParseAddr(s)) }
	port := func(p uint16) Tuple { return Tuple{}.Port(p) }
	tests := []struct {
		typ         Type
		first, last Tuple
		want        string
	}{
		{TypeIPv4Addr, addr("10.0.0.1"), addr("10.0.0.1"), "10.0.0.1"},
		{TypeIPv4Addr, addr("10.0.0.0"), addr("10.0.0.255"), "10.0.0.0/24"},
		{TypeIPv4Addr, addr("10.0.0.1"), addr("10.0.0.9"), "10.0.0.1-10.0.0.9"},
		{TypeIPv4Addr, addr("0.0.0.0"), addr("255.255.255.255"), "0.0.0.0/0"},
		{TypeIPv6Addr, addr("2001:db8::"), addr("2001:db8::ffff"), "2001:db8::/112"},
		{TypeIPv6Addr, addr("2001:db8::1"), addr("2001:db8::ffff"), "2001:db8::1-2001:db8::ffff"},
		{TypeInetService, port(80), port(80), "80"},
		{TypeInetService, port(1024), port(2047), "1024-2047"},
		{TypeInetService, port(1), port(65535), "1-65535"},
	}
	for _, tt := range tests {
		if got := intervalText(tt.typ, tt.first.b[:tt.typ.size], tt.last.b[:tt.typ.size]); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

func TestRangeText(t *testing.T) {
	fields := Types(TypeIPv4Addr, TypeInetProto, TypeInetService)
	vip := Tuple{}.Addr(netip.MustParseAddr("10.96.0.10"))
	tests := []struct {
		name       string
		fields     Fields
		tuple, end Tuple
		want       string
	}{
		{"one field", Types(TypeIPv4Addr), vip, Tuple{}, "10.96.0.10"},
		{"concatenation", fields, vip.Proto(6).Port(80), Tuple{}, "10.96.0.10 . tcp . 80"},
		{"protocol without a name", fields, vip.Proto(41).Port(80), Tuple{}, "10.96.0.10 . 41 . 80"},
		{"range of the last field", fields, vip.Proto(17).Port(80), vip.Proto(17).Port(90), "10.96.0.10 . udp . 80-90"},
		{"number of numgen", Typeof(Constant(0)), Tuple{}.Integer(1 << 24), Tuple{}, "16777216"},
		{"too short", fields, vip, Tuple{}, "0x0a60000a"},
		{"too long", Types(TypeIPv4Addr), vip.Port(80), Tuple{}, "0x0a60000a00500000"},
		{"empty", fields, Tuple{}, Tuple{}, "0x"},
	}
	for _, tt := range tests {
		if got := tt.fields.rangeText(tt.tuple, tt.end); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTupleArithmetic(t *testing.T) {
	port := func(p uint16) Tuple { return Tuple{}.Port(p) }
	tests := []struct{ tuple, next uint16 }{{0, 1}, {0xff, 0x100}, {0x1ff, 0x200}, {0xfffe, 0xffff}}
	for _, tt := range tests {
		if got, ok := port(tt.tuple).next(2); got != port(tt.next) || !ok {
			t.Errorf("%d is followed by %v, %v", tt.tuple, got, ok)
		}
		if got := port(tt.next).previous(2); got != port(tt.tuple) {
			t.Errorf("before %d comes %v", tt.next, got)
		}
	}
	if _, ok := port(0xffff).next(2); ok {
		t.Error("something follows the largest")
	}
	if got := port(0).previous(2); got != port(0xffff) {
		t.Errorf("before 0 comes %v", got)
	}
}

func TestTooMuch(t *testing.T) {
	addr := netip.MustParseAddr("2001:db8::1")
	full := Tuple{}.Addr(addr).Addr(addr).Addr(addr).Addr(addr)
	for name, f := range map[string]func(){
		"a fifth IPv6 address": func() { full.Port(1) },
		"a sixth type": func() {
			Types(TypeInetProto, TypeInetProto, TypeInetProto, TypeInetProto, TypeInetProto, TypeInetProto)
		},
		"a sixth expression": func() { Typeof(L4Proto(), L4Proto(), L4Proto(), L4Proto(), L4Proto(), L4Proto()) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			f()
		}()
	}
}

func TestDurationText(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"},
		{time.Millisecond, "1ms"},
		{time.Millisecond - 1, "0s"},
		{time.Second, "1s"},
		{90 * time.Second, "1m30s"},
		{3 * time.Hour, "3h"},
		{10800*time.Second + 5*time.Millisecond, "3h5ms"},
		{24 * time.Hour, "1d"},
		{26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond, "1d2h3m4s5ms"},
		{366 * 24 * time.Hour, "366d"},
	}
	for _, tt := range tests {
		if got := durationText(tt.d); got != tt.want {
			t.Errorf("%d ns: %s, want %s", tt.d, got, tt.want)
		}
	}
}

func TestStoredComment(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	tests := []struct{ name, comment, want string }{
		{"empty", "", ""},
		{"short", "default/web:http", "default/web:http"},
		{"not ASCII", "grün", "grün"},
		{"quotation marks", `say "hello"`, "say 'hello'"},
		{"NUL", "a\x00b", "a b"},
		{"as long as it can be", x(127), x(127)},
		{"one too long", x(128), x(127)},
		{"last character just fits", x(125) + "üü", x(125) + "ü"},
		{"two bytes cut in half", x(126) + "ü", x(126)},
		{"three bytes cut after one", x(126) + "€", x(126)},
		{"three bytes cut after two", x(125) + "€", x(125)},
		{"four bytes cut after three", x(124) + "😀", x(124)},
		{"four bytes that just fit", x(123) + "😀" + "x", x(123) + "😀"},
		{"no characters at all", strings.Repeat("\x80", 130), strings.Repeat("\x80", 127)},
	}
	for _, tt := range tests {
		if got := storedComment(tt.comment); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := cutComment("ü", 0); got != "" {
		t.Errorf("cut to nothing: %q", got)
	}
}

// What is written is in order, whatever the order of the rows.
func TestFprintInOrder(t *testing.T) {
	a, b := &Set{Name: "a", Key: Types(TypeInetService)}, &Set{Name: "b", Key: Types(TypeInetService), Data: Types(TypeInetProto)}
	row := func(s *Set, port uint16) Row { return Row{Set: s, Key: Tuple{}.Port(port), Data: Tuple{}.Proto(6)} }
	var out strings.Builder
	rows := []Row{row(b, 2), row(a, 300), row(a, 1), row(b, 1), row(a, 2)}
	before := slices.Clone(rows)
	if err := (&Table{Family: IPv6, Name: "t", Sets: []*Set{b, a}}).Fprint(&out, rows); err != nil {
		t.Fatal(err)
	}
	const want = `table ip6 t {

	map b {
		type inet_service : inet_proto
		elements = {
			1 : tcp,
			2 : tcp
		}
	}

	set a {
		type inet_service
		elements = {
			1,
			2,
			300
		}
	}
}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	if !slices.Equal(rows, before) {
		t.Error("the rows of the caller were reordered")
	}
}

// Two chains have the same program if they would list the same.
func TestSameProgram(t *testing.T) {
	chain := func(change func(*Chain)) *Chain {
		c := &Chain{Name: "c", Comment: "x", Hook: &Hook{TypeFilter, Input, 0}, Rules: []Rule{NewRule(CtStateNew(), Drop()), NewRule(Goto("d")).WithComment("y")}}
		change(c)
		return c
	}
	same := chain(func(*Chain) {})
	tests := []struct {
		name   string
		change func(*Chain)
		same   bool
	}{
		{"nothing", func(c *Chain) {}, true},
		{"how a statement was made", func(c *Chain) { c.Rules[0] = NewRule(CtStateNew(), Do(VerdictDrop)) }, true},
		{"name", func(c *Chain) { c.Name = "d" }, false},
		{"comment", func(c *Chain) { c.Comment = "" }, false},
		{"priority", func(c *Chain) { c.Hook.Priority = 1 }, false},
		{"no hook", func(c *Chain) { c.Hook = nil }, false},
		{"statement", func(c *Chain) { c.Rules[0] = NewRule(CtStateNew()) }, false},
		{"order", func(c *Chain) { slices.Reverse(c.Rules) }, false},
		{"fewer rules", func(c *Chain) { c.Rules = c.Rules[:1] }, false},
		{"comment of a rule", func(c *Chain) { c.Rules[1].Comment = "z" }, false},
	}
	for _, tt := range tests {
		if a, b := SameProgram(same, chain(tt.change)), SameProgram(chain(tt.change), same); a != tt.same || b != tt.same {
			t.Errorf("with another %s: %v, %v; want %v", tt.name, a, b, tt.same)
		}
	}
}

func TestFamily(t *testing.T) {
	tests := []struct {
		addr       string
		family     Family
		ipv4, ipv6 bool
	}{
		{"10.0.0.1", IPv4, true, false},
		{"fd00::1", IPv6, false, true},
		{"fe80::1%eth0", IPv6, false, true},
		{"::ffff:10.0.0.1", IPv6, false, false},
	}
	for _, tt := range tests {
		a := netip.MustParseAddr(tt.addr)
		if FamilyOf(a) != tt.family || IPv4.Of(a) != tt.ipv4 || IPv6.Of(a) != tt.ipv6 || Family(0).Of(a) {
			t.Errorf("%s is of %s; of ip %v, of ip6 %v", a, FamilyOf(a), IPv4.Of(a), IPv6.Of(a))
		}
	}
	if !IPv4.Valid() || !IPv6.Valid() || Family(0).Valid() || Family(unix.NFPROTO_INET).Valid() {
		t.Error("the valid families are not ip and ip6")
	}
	if IPv4.AddrLen() != 4 || IPv6.AddrLen() != 16 || Family(0).AddrLen() != 0 {
		t.Error("lengths of addresses")
	}
}

// Fields that were declared do not change when the caller uses its slice for others.
func TestFieldsAreTheirOwn(t *testing.T) {
	exprs := make([]Expr, 0, 4)
	exprs = append(exprs, Daddr(IPv4))
	f := Typeof(append(exprs, ThDport())...)
	_ = append(exprs, L4Proto())
	if f.String() != "ip daddr . th dport" {
		t.Error(f)
	}
}

func TestQuote(t *testing.T) {
	if got := quote("a b"); got != `"a b"` {
		t.Error(got)
	}
}

func TestIsName(t *testing.T) {
	for _, s := range []string{"a", "Z9", "_x", ".x", "balance-2", "affinity/default/sticky/tcp/", "a.b_c"} {
		if !isName(s) {
			t.Errorf("%q is no name", s)
		}
	}
	for _, s := range []string{"", "1a", "-a", "/a", "a b", "a;", "a\"", "ä", "a\x00", "a@b", "a[", "a`", "@", "{"} {
		if isName(s) {
			t.Errorf("%q is a name", s)
		}
	}
}

func TestStringsOfNumbers(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{IPv4.String(), "ip"},
		{IPv6.String(), "ip6"},
		{Family(5).String(), "family 5"},
		{Prerouting.String() + Input.String() + Forward.String() + Output.String() + Postrouting.String(), "preroutinginputforwardoutputpostrouting"},
		{HookPoint(9).String(), "unknown"},
		{(Verdict{code: 7}).String(), "verdict 7"},
		{VerdictReturn.String(), "return"},
		{VerdictJump("a").String(), "jump a"},
		{VerdictGoto("a").Chain(), "a"},
		{TypeInetProto.String(), "inet_proto"},
		{Typeof(Daddr(IPv4), Random(2, 7)).String(), "ip daddr . numgen random mod 2 offset 7"},
		{Dport(17).String() + ", " + Dport(47).String(), "udp dport, th dport"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}
