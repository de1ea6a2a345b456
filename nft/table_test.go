package nft

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEqualChains(t *testing.T) {
	chain := func(change func(*Chain)) *Chain {
		rules := []Rule{NewRule(CtStatusDNAT(), Drop()), NewRule(Goto("d")).WithComment("y")}
		c := &Chain{Name: "c", Hook: &Hook{Type: ChainTypeFilter, Point: Input}, Rules: rules}
		change(c)
		return c
	}
	original := chain(func(*Chain) {})
	tests := []struct {
		name   string
		change func(*Chain)
		want   bool
	}{
		{"nothing", func(c *Chain) {}, true},
		{"equal rule", func(c *Chain) { c.Rules[0] = NewRule(CtStatusDNAT(), Drop()) }, true},
		{"name", func(c *Chain) { c.Name = "d" }, false},
		{"priority", func(c *Chain) { c.Hook.Priority = 1 }, false},
		{"no hook", func(c *Chain) { c.Hook = nil }, false},
		{"statement", func(c *Chain) { c.Rules[0] = NewRule(CtStatusDNAT()) }, false},
		{"order", func(c *Chain) { slices.Reverse(c.Rules) }, false},
		{"fewer rules", func(c *Chain) { c.Rules = c.Rules[:1] }, false},
		{"comment of a rule", func(c *Chain) { c.Rules[1].Comment = "z" }, false},
	}
	for _, tt := range tests {
		other := chain(tt.change)
		if a, b := original.Equal(other), other.Equal(original); a != tt.want || b != tt.want {
			t.Errorf("%s changed: got %v, %v; want %v", tt.name, a, b, tt.want)
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
			t.Errorf("got family %s, of ip %v, of ip6 %v; want %+v", FamilyOf(a), IPv4.Of(a), IPv6.Of(a), tt)
		}
	}
	if !IPv4.Valid() || !IPv6.Valid() || Family(0).Valid() || Family(unix.NFPROTO_INET).Valid() {
		t.Error("got other valid families, want ip and ip6")
	}
	if a, b, c := IPv4.AddrLen(), IPv6.AddrLen(), Family(0).AddrLen(); a != 4 || b != 16 || c != 0 {
		t.Errorf("got lengths of addresses %d, %d, %d; want 4, 16, 0", a, b, c)
	}
}

// Fprint sorts rows and keeps the order of sets.
func TestFprintOrder(t *testing.T) {
	key := Types(TypeInetService)
	a, b := &Set{Name: "a", Key: key}, &Set{Name: "b", Key: key, Data: Types(TypeInetProto)}
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
		t.Errorf("rows of the caller: got %v, want %v", rows, before)
	}
}
