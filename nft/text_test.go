package nft

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

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
			t.Errorf("got %s, want %s", got, tt.want)
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
		{"range", fields, vip.Proto(17).Port(80), vip.Proto(17).Port(90), "10.96.0.10 . udp . 80-90"},
		{"number of Constant", Typeof(Constant(0)), Tuple{}.Integer(1 << 24), Tuple{}, "16777216"},
		{"too short", fields, vip, Tuple{}, "0x0a60000a"},
		{"too long", Types(TypeIPv4Addr), vip.Port(80), Tuple{}, "0x0a60000a00500000"},
		{"empty", fields, Tuple{}, Tuple{}, "0x"},
	}
	for _, tt := range tests {
		if got := tt.fields.rangeText(tt.tuple, tt.end); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
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
			t.Errorf("%d ns: got %s, want %s", tt.d, got, tt.want)
		}
	}
}

func TestQuote(t *testing.T) {
	if got, want := quote("a b"), `"a b"`; got != want {
		t.Errorf("got %s, want %s", got, want)
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
		{Typeof(Daddr(IPv4), Random(2, 7)).String(), "ip daddr . numgen random mod 2 offset 7"},
		{ThDport().String(), "th dport"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
