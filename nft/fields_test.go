package nft

import (
	"net/netip"
	"testing"
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
