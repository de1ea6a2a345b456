package nft

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/nftables/expr"
)

func TestTooManyFields(t *testing.T) {
	addr := netip.MustParseAddr("2001:db8::1")
	full := Tuple{}.Addr(addr).Addr(addr).Addr(addr).Addr(addr)
	types := []Type{TypeInetProto, TypeInetProto, TypeInetProto, TypeInetProto, TypeInetProto, TypeInetProto}
	for name, f := range map[string]func(){
		"more than 64 bytes": func() { full.Port(1) },
		"a sixth type":       func() { Types(types...) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: got no panic", name)
				}
			}()
			f()
		}()
	}
}

// Types copies the slice of the caller.
func TestTypesCopies(t *testing.T) {
	types := make([]Type, 0, 4)
	types = append(types, TypeIPv4Addr)
	f := Types(append(types, TypeInetService)...)
	_ = append(types, TypeInetProto)
	if got, want := f.String(), "ipv4_addr . inet_service"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFieldsText(t *testing.T) {
	fields := Types(TypeIPv4Addr, TypeInetProto, TypeInetService)
	vip := Tuple{}.Addr(netip.MustParseAddr("10.96.0.10"))
	tests := []struct {
		name   string
		fields Fields
		tuple  Tuple
		want   string
	}{
		{"one field", Types(TypeIPv4Addr), vip, "10.96.0.10"},
		{"concatenation", fields, vip.Proto(6).Port(80), "10.96.0.10 . tcp . 80"},
		{"protocol without a name", fields, vip.Proto(41).Port(80), "10.96.0.10 . 41 . 80"},
		{"class", Types(TypeClassID), Tuple{}.Integer(1 << 24), "100:0"},
		{"too short", fields, vip, "0x0a60000a"},
		{"too long", Types(TypeIPv4Addr), vip.Port(80), "0x0a60000a00500000"},
		{"empty", fields, Tuple{}, "0x"},
	}
	for _, tt := range tests {
		if got := tt.fields.Text(tt.tuple.Bytes()); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestString(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{IPv4.String(), "ip"},
		{IPv6.String(), "ip6"},
		{Family(99).String(), "family 99"},
		{fmt.Sprint(Prerouting, Input, Forward, Output, Postrouting), "prerouting input forward output postrouting"},
		{HookPoint(9).String(), "9"},
		{(Verdict{code: 7}).String(), "verdict 7"},
		{VerdictReturn.String(), "return"},
		{VerdictJump("a").String(), "jump a"},
		{VerdictGoto("a").Chain(), "a"},
		{Random(2, 7).String(), "numgen random mod 2 offset 7"},
		{ThDport().String(), "th dport"},
		{NewRule(Statement{&expr.Queue{Num: 100, Total: 1}}).Text(IPv4), "queue to 100"},
		{NewRule(Statement{&expr.Queue{Num: 100, Total: 4, Flag: expr.QueueFlagBypass}}).Text(IPv4),
			"queue flags bypass to 100-103"},
		{NewRule(Within(Saddr(IPv4), netip.MustParsePrefix("10.16.0.0/12"))).Text(IPv4), "ip saddr 10.16.0.0/12"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
