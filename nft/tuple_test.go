package nft

import (
	"testing"
)

func TestTupleArithmetic(t *testing.T) {
	port := func(p uint16) Tuple { return Tuple{}.Port(p) }
	tests := []struct{ tuple, next uint16 }{{0, 1}, {0xff, 0x100}, {0x1ff, 0x200}, {0xfffe, 0xffff}}
	for _, tt := range tests {
		if got, ok := port(tt.tuple).next(2); got != port(tt.next) || !ok {
			t.Errorf("next of %d: got %v, %v; want %d", tt.tuple, got, ok, tt.next)
		}
		if got := port(tt.next).previous(2); got != port(tt.tuple) {
			t.Errorf("previous of %d: got %v, want %d", tt.next, got, tt.tuple)
		}
	}
	if got, ok := port(0xffff).next(2); ok {
		t.Errorf("next of the largest number: got %v, want none", got)
	}
	if got := port(0).previous(2); got != port(0xffff) {
		t.Errorf("previous of 0: got %v, want the largest number", got)
	}
}
