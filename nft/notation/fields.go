package notation

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// maxFields is the maximum number of fields in a concatenation. The type
// number of nft has 6 bits for each of five fields.
const maxFields = 5

// Fields describes a key or data: one field, or a concatenation of up to
// five.
type Fields struct {
	types []Type
	size  int // of a value in bytes, with padding for a concatenation
}

// Types declares fields by their types, as in `type ipv4_addr .
// inet_service`. It panics if there are more than five.
func Types(types ...Type) Fields {
	if len(types) > maxFields {
		panic(fmt.Sprintf("nft: got %d fields, want at most %d", len(types), maxFields))
	}
	f := Fields{types: slices.Clone(types)} // callers may append to their slices
	for _, t := range types {
		f.size += t.Padded()
	}
	if len(types) == 1 {
		f.size = types[0].size
	}
	return f
}

// Len returns the length of a value in bytes, 0 if there are no fields.
func (f *Fields) Len() int { return f.size }

// Size returns the number of bytes of registers that a value takes.
func (f *Fields) Size() int { return nfnetlink.Align(f.size) }

// fieldBits is the number of bits of one field in the number of a type.
const fieldBits = 6

// TypeID returns the number of nft for the type. The number of a
// concatenation consists of the numbers of its fields, 6 bits each.
func (f *Fields) TypeID() uint32 {
	var id uint32
	for _, t := range f.types {
		id = id<<fieldBits | t.id
	}
	return id
}

// FieldsOf returns the fields with a type number (see TypeID). If a field is
// not known, it returns one field of raw bytes, and known as false. Sets of
// other programs and of earlier versions have integers.
func FieldsOf(id, length uint32) (f Fields, known bool) {
	types := []Type{TypeInteger, TypeIPv4Addr, TypeIPv6Addr, TypeInetProto, TypeInetService, TypeClassID}
	var fields []Type
	for shift := fieldBits * (maxFields - 1); shift >= 0; shift -= fieldBits {
		field := id >> shift & (1<<fieldBits - 1)
		if field == 0 && len(fields) == 0 {
			continue
		}
		i := slices.IndexFunc(types, func(t Type) bool { return t.id == field })
		if i < 0 {
			return Types(Type{id: id, name: "raw", size: int(length), order: orderBig, text: hex.EncodeToString}), false
		}
		fields = append(fields, types[i])
	}
	return Types(fields...), true
}

// order returns the order of the bytes of a value.
func (f Fields) order() byteOrder {
	if len(f.types) == 1 {
		return f.types[0].order
	}
	return orderInvalid
}

// String returns the fields as nft writes them after `type`.
func (f Fields) String() string {
	var parts []string
	for _, t := range f.types {
		parts = append(parts, t.name)
	}
	return strings.Join(parts, " . ")
}

// Text returns a value with these fields, each padded, in nft syntax.
func (f Fields) Text(value []byte) string {
	if len(value) != f.Size() {
		return fmt.Sprintf("0x%x", value)
	}
	parts := make([]string, 0, len(f.types))
	at := 0
	for _, typ := range f.types {
		parts = append(parts, typ.text(value[at:at+typ.size]))
		at += typ.Padded()
	}
	return strings.Join(parts, " . ")
}
