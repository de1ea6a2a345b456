package nfnetlink

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// attribute returns an attribute with its padding.
func attribute(typ uint16, value string) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(AttrHeaderLen+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, typ), value...)
	return append(b, make([]byte, Align(len(b))-len(b))...)
}

// Flags are not part of the type, the last attribute of a type counts, and the
// attributes before an incomplete one are read.
func TestAttr(t *testing.T) {
	b := append(attribute(1, "first"), attribute(1|unix.NLA_F_NESTED, "last\x00x")...)
	b = append(append(b, attribute(2|unix.NLA_F_NET_BYTEORDER, "")...), attribute(3, "cut")[:6]...)
	for typ, want := range map[uint16]string{1: "last", 2: "", 3: "", 4: ""} {
		if got := unix.ByteSliceToString(Attr(b, typ)); got != want {
			t.Errorf("attribute %d: got %q, want %q", typ, got, want)
		}
	}
	var types []uint16
	EachAttr(b, func(typ uint16, _ []byte) { types = append(types, typ) })
	if len(types) != 3 || types[0] != 1 || types[1] != 1 || types[2] != 2 {
		t.Errorf("got attributes %v, want 1, 1 and 2", types)
	}
}
