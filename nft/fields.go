package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Type is the data type of one field of a key or of data. nft numbers the
// types (TYPE_* in its datatype.h); the kernel stores the number but does not
// interpret it.
type Type struct {
	id    uint32
	name  string
	size  int // of a value in bytes
	order byteOrder
	text  func([]byte) string // returns a value in nft syntax
	// prefixes is set if nft writes a range of values as a prefix if
	// possible.
	prefixes bool
	// bits is set if the bits of a value have names.
	bits bool
}

// byteOrder is the BYTEORDER_* number of nft.
type byteOrder uint32

const (
	orderInvalid byteOrder = 0 // of a concatenation
	orderHost    byteOrder = 1
	orderBig     byteOrder = 2
)

// Data types of fields.
var (
	typeInteger     = Type{id: 4, name: "integer", size: 4, order: orderHost, text: integerText}
	TypeIPv4Addr    = Type{id: 7, name: "ipv4_addr", size: 4, order: orderBig, text: addrText, prefixes: true}
	TypeIPv6Addr    = Type{id: 8, name: "ipv6_addr", size: 16, order: orderBig, text: addrText, prefixes: true}
	TypeInetProto   = Type{id: 12, name: "inet_proto", size: 1, order: orderBig, text: protoText}
	TypeInetService = Type{id: 13, name: "inet_service", size: 2, order: orderBig, text: portText}
)

// TypeAddr returns the address type of a family.
func TypeAddr(f Family) Type { return ofFamily(f, TypeIPv4Addr, TypeIPv6Addr) }

// padded returns the size of a value in a concatenation, where each field
// takes whole registers of 4 bytes.
func (t Type) padded() int { return align4(t.size) }

func addrText(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

func protoText(b []byte) string { return nfnetlink.ProtocolName(b[0]) }

func portText(b []byte) string { return strconv.Itoa(int(binary.BigEndian.Uint16(b))) }

func integerText(b []byte) string {
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10)
}

// maxFields is the maximum number of fields in a concatenation. The type
// number of nft has 6 bits for each of five fields.
const maxFields = 5

// Fields describes a key or data: one field, or a concatenation of up to
// five.
type Fields struct {
	types []Type
	exprs []Expr // as many as types, or none
	size  int    // of a value in bytes, with padding for a concatenation
}

// Types declares fields by their types, as in `type ipv4_addr .
// inet_service`. It panics if there are more than five.
func Types(types ...Type) Fields { return newFields(types, nil) }

// Typeof declares fields by the expressions whose values they hold, as in
// `typeof ip daddr . th dport`. It is the only way to declare a field that
// holds a number of Random or Constant. It panics if there are more than
// five.
func Typeof(exprs ...Expr) Fields {
	var types []Type
	for _, e := range exprs {
		types = append(types, e.typ)
	}
	return newFields(types, exprs)
}

func newFields(types []Type, exprs []Expr) Fields {
	if len(types) > maxFields {
		panic(fmt.Sprintf("nft: got %d fields, want at most %d", len(types), maxFields))
	}
	f := Fields{types: slices.Clone(types), exprs: slices.Clone(exprs)} // callers may append to their slices
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

func (f Fields) hasTypeof() bool { return len(f.exprs) > 0 }

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

// String returns the fields as nft writes them after `type` or `typeof`.
func (f Fields) String() string {
	var parts []string
	for i, t := range f.types {
		if f.hasTypeof() {
			parts = append(parts, f.exprs[i].String())
		} else {
			parts = append(parts, t.name)
		}
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
