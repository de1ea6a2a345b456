package nft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Type is the data type of one field of a key or of a map's data. Its identity is
// nft's own (the TYPE_* numbers of nft's datatype.h); the kernel keeps it for nft and does
// not look at it.
type Type struct {
	id    uint32
	name  string
	size  int // of a value, in bytes
	order byteOrder
	text  func([]byte) string // of a value
	// prefixes says whether nft writes ranges of such values as prefixes, where they are some.
	prefixes bool
}

// byteOrder is nft's BYTEORDER_* number.
type byteOrder uint32

const (
	orderInvalid byteOrder = 0 // of a concatenation
	orderHost    byteOrder = 1
	orderBig     byteOrder = 2
)

// The data types that fields can have, by the names that nft gives them.
var (
	typeInteger     = Type{4, "integer", 4, orderHost, hostInteger, false}
	TypeIPv4Addr    = Type{7, "ipv4_addr", 4, orderBig, addrText, true}
	TypeIPv6Addr    = Type{8, "ipv6_addr", 16, orderBig, addrText, true}
	TypeInetProto   = Type{12, "inet_proto", 1, orderBig, protoText, false}
	TypeInetService = Type{13, "inet_service", 2, orderBig, portText, false}
)

// TypeAddr returns the address type of a family.
func TypeAddr(f Family) Type {
	if f == IPv4 {
		return TypeIPv4Addr
	}
	return TypeIPv6Addr
}

// String returns the name of the type in nft.
func (t Type) String() string { return t.name }

// padded is the room that a value of the type takes within a concatenation: whole registers of 4 bytes.
func (t Type) padded() int { return align4(t.size) }

func align4(n int) int { return (n + 3) &^ 3 }

func addrText(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

func protoText(b []byte) string { return protocolName(b[0]) }

func portText(b []byte) string { return strconv.Itoa(int(binary.BigEndian.Uint16(b))) }

func hostInteger(b []byte) string {
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10)
}

// protocolName returns the name of an IP protocol as nft prints it, or its number.
func protocolName(p uint8) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// maxTuple is the most that the kernel takes as a key or as data: NFT_DATA_VALUE_MAXLEN.
const maxTuple = 64

// Tuple is the value of a key or of a map's data: one field, or the fields of a concatenation.
// The zero Tuple is empty; fields are appended to it:
//
//	nft.Tuple{}.Addr(vip).Proto(unix.IPPROTO_TCP).Port(80)
//
// Every field takes a multiple of 4 bytes. Tuples are comparable with ==. Appending more than 64 bytes panics.
type Tuple struct {
	n uint8
	b [maxTuple]byte
}

// Addr appends an IP address.
func (t Tuple) Addr(a netip.Addr) Tuple {
	if a.Is4() {
		b := a.As4()
		return t.append(b[:])
	}
	b := a.As16()
	return t.append(b[:])
}

// Proto appends an IP protocol number.
func (t Tuple) Proto(p uint8) Tuple { return t.append([]byte{p}) }

// Port appends a transport port.
func (t Tuple) Port(p uint16) Tuple { return t.append([]byte{byte(p >> 8), byte(p)}) }

// Integer appends an integer in host byte order, such as numgen yields.
func (t Tuple) Integer(v uint32) Tuple {
	var field [4]byte
	binary.NativeEndian.PutUint32(field[:], v)
	return t.append(field[:])
}

// FirstInteger returns the first field, which Integer appended.
func (t Tuple) FirstInteger() uint32 { return binary.NativeEndian.Uint32(t.b[:]) }

func (t Tuple) append(field []byte) Tuple {
	room := align4(len(field))
	if int(t.n)+room > maxTuple {
		panic(fmt.Sprintf("nft: tuple of more than %d bytes", maxTuple))
	}
	copy(t.b[t.n:], field)
	t.n += uint8(room)
	return t
}

// IsZero says whether the tuple has no field.
func (t Tuple) IsZero() bool { return t.n == 0 }

// next returns the tuple that follows t, taken as one number of n bytes; ok is false if there is none.
func (t Tuple) next(n int) (_ Tuple, ok bool) {
	for i := n - 1; i >= 0; i-- {
		t.b[i]++
		if t.b[i] != 0 {
			return t, true
		}
	}
	return t, false
}

// previous returns the tuple before t, taken as one number of n bytes; that before 0 is the largest.
func (t Tuple) previous(n int) Tuple {
	for i := n - 1; i >= 0; i-- {
		t.b[i]--
		if t.b[i] != 0xff {
			break
		}
	}
	return t
}

// Compare orders tuples by their bytes, the shorter first.
func (t Tuple) Compare(o Tuple) int {
	if t.n != o.n {
		return int(t.n) - int(o.n)
	}
	return bytes.Compare(t.b[:t.n], o.b[:o.n])
}
