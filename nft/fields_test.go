package nft

import (
	"net/netip"
	"testing"
)

func TestTooManyFields(t *testing.T) {
	addr := netip.MustParseAddr("2001:db8::1")
	full := Tuple{}.Addr(addr).Addr(addr).Addr(addr).Addr(addr)
	types := []Type{TypeInetProto, TypeInetProto, TypeInetProto, TypeInetProto, TypeInetProto, TypeInetProto}
	exprs := []Expr{L4Proto(), L4Proto(), L4Proto(), L4Proto(), L4Proto(), L4Proto()}
	for name, f := range map[string]func(){
		"more than 64 bytes": func() { full.Port(1) },
		"a sixth type":       func() { Types(types...) },
		"a sixth expression": func() { Typeof(exprs...) },
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

// Typeof copies the slice of the caller.
func TestTypeofCopies(t *testing.T) {
	exprs := make([]Expr, 0, 4)
	exprs = append(exprs, Daddr(IPv4))
	f := Typeof(append(exprs, ThDport())...)
	_ = append(exprs, L4Proto())
	if got, want := f.String(), "ip daddr . th dport"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
