package notation

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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
	TypeIPv4Addr    = Type{id: 7, name: "ipv4_addr", size: 4, order: orderBig, text: addrText, prefixes: true}
	TypeIPv6Addr    = Type{id: 8, name: "ipv6_addr", size: 16, order: orderBig, text: addrText, prefixes: true}
	TypeInetProto   = Type{id: 12, name: "inet_proto", size: 1, order: orderBig, text: protoText}
	TypeInetService = Type{id: 13, name: "inet_service", size: 2, order: orderBig, text: portText}
	TypeClassID     = Type{id: 23, name: "classid", size: 4, order: orderHost, text: classText}
	TypeInteger     = Type{id: 4, name: "integer", size: 4, order: orderHost, text: integerText}
)

// Size returns the size of a value in bytes.
func (t Type) Size() int { return t.size }

// Padded returns the size of a value in a concatenation, where each field
// takes whole registers of 4 bytes.
func (t Type) Padded() int { return nfnetlink.Align(t.size) }

func addrText(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

func protoText(b []byte) string { return nfnetlink.ProtocolName(b[0]) }

func portText(b []byte) string { return strconv.Itoa(int(binary.BigEndian.Uint16(b))) }

func sequenceText(b []byte) string { return strconv.FormatUint(uint64(binary.BigEndian.Uint32(b)), 10) }

func integerText(b []byte) string {
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10)
}

// classText returns a class of traffic control: two hexadecimal numbers of 16
// bits.
func classText(b []byte) string {
	switch n := number(b); n {
	case 0:
		return "none"
	case math.MaxUint32:
		return "root"
	default:
		return fmt.Sprintf("%x:%x", n>>16, n&math.MaxUint16)
	}
}

// Types of values that sets do not have.
var (
	typeMark      = Type{size: 4, order: orderHost, text: hexText, prefixes: true}
	typeInterface = Type{size: unix.IFNAMSIZ, text: interfaceText}
	typeFamily    = namedType(1, "", "inet", "ipv4", "arp", "", "netdev", "", "bridge", "", "", "ipv6")
	typeDirection = namedType(1, "original", "reply")
	typePresence  = namedType(4, "missing", "exists")
	typeRoute     = namedType(4, "unspec", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole",
		"unreachable", "prohibit")

	typeCtState  = bitsType(4, "invalid", "established", "related", "new", "", "", "untracked")
	typeCtStatus = bitsType(4, "expected", "seen-reply", "assured", "confirmed", "snat", "dnat", "", "", "", "dying")
	typeSequence = Type{size: 4, order: orderBig, text: sequenceText}
	typeTCPFlags = bitsType(1, "fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr")
)

// namedType is a type whose values have names, from 0.
func namedType(size int, names ...string) Type {
	return Type{size: size, order: orderHost,
		text: func(value []byte) string { return NameOf(number(value), names...) }}
}

// bitsType is a type whose bits have names, from the lowest one.
func bitsType(size int, names ...string) Type {
	return Type{size: size, order: orderHost, bits: true, text: func(value []byte) string {
		var set []string
		for i, name := range names {
			if number(value)&(1<<i) != 0 {
				set = append(set, name)
			}
		}
		return strings.Join(set, ",")
	}}
}

// number returns a number of 1 or 4 bytes in host byte order.
func number(value []byte) uint32 {
	if len(value) == 1 {
		return uint32(value[0])
	}
	return binary.NativeEndian.Uint32(value)
}

// rawType is the type of bytes whose meaning is unknown.
func rawType(size int) Type { return Type{size: size, order: orderBig, text: rawText} }

func rawText(value []byte) string {
	if digits := strings.TrimLeft(hex.EncodeToString(value), "0"); digits != "" {
		return "0x" + digits
	}
	return "0x0"
}

func hexText(value []byte) string { return fmt.Sprintf("0x%08x", number(value)) }

// interfaceText returns the name of an interface, or the beginning of names and
// *.
func interfaceText(value []byte) string {
	name := unix.ByteSliceToString(value)
	if len(value) < unix.IFNAMSIZ {
		return Quote(name + "*")
	}
	return Quote(name)
}

// constant returns a constant in nft syntax. The zero Type stands for an
// unknown one.
func (t Type) constant(value []byte) string {
	isWildcard := t.size == unix.IFNAMSIZ && t.order == orderInvalid && len(value) > 0
	if t.text == nil || len(value) != t.size && !isWildcard {
		return rawText(value)
	}
	return t.text(value)
}

// bigEndian returns a value with its most significant byte first, or the
// reverse of that.
func (t Type) bigEndian(value []byte) []byte {
	if t.order != orderHost || len(value) != 4 {
		return value
	}
	return binary.BigEndian.AppendUint32(nil, number(value))
}

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

// Quote puts a string into quotation marks, for which nft has no escape (see
// Comment).
func Quote(s string) string { return `"` + s + `"` }

// IsName reports whether the scanner of nft reads s as a name. It does not
// check for keywords.
func IsName(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		switch {
		case letter, c == '_', c == '.':
		case i > 0 && ('0' <= c && c <= '9' || c == '/' || c == '-'):
		default:
			return false
		}
	}
	return s != ""
}

// NameOf returns the name of a number, or the number if it has none.
func NameOf(n uint32, names ...string) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return strconv.FormatUint(uint64(n), 10)
}
