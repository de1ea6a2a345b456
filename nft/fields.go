package nft

import (
	"fmt"
	"slices"
	"strings"
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
		f.size += t.padded()
	}
	if len(types) == 1 {
		f.size = types[0].size
	}
	return f
}

// Size returns the number of bytes of registers that a value takes.
func (f Fields) Size() int { return align4(f.size) }

// typeID returns the number of nft for the type. The number of a
// concatenation consists of the numbers of its fields, 6 bits each.
func (f Fields) typeID() uint32 {
	var id uint32
	for _, t := range f.types {
		id = id<<6 | t.id
	}
	return id
}

// fit reports whether the tuple has the size of these fields.
func (f *Fields) fit(t *Tuple) bool { return int(t.n) == align4(f.size) }

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

// text returns a tuple with these fields in nft syntax.
func (f Fields) text(t Tuple) string {
	if !f.fit(&t) {
		return fmt.Sprintf("0x%x", t.b[:t.n])
	}
	parts := make([]string, 0, len(f.types))
	at := 0
	for _, typ := range f.types {
		parts = append(parts, typ.text(t.b[at:at+typ.size]))
		at += typ.padded()
	}
	return strings.Join(parts, " . ")
}
