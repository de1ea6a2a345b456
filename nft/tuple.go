package nft

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
	"github.com/nftproxy/nftproxy/nft/notation"
)

// Type is the data type of one field of a key or of data.
type Type = notation.Type

// Data types of fields.
var (
	TypeIPv4Addr    = notation.TypeIPv4Addr
	TypeIPv6Addr    = notation.TypeIPv6Addr
	TypeInetProto   = notation.TypeInetProto
	TypeInetService = notation.TypeInetService
	TypeClassID     = notation.TypeClassID
)

// TypeAddr returns the address type of a family.
func TypeAddr(f Family) Type { return ofFamily(f, TypeIPv4Addr, TypeIPv6Addr) }

// Fields describes a key or data: one field, or a concatenation of up to
// five.
type Fields = notation.Fields

// Types declares fields by their types, as in `type ipv4_addr .
// inet_service`. It panics if there are more than five.
func Types(types ...Type) Fields { return notation.Types(types...) }

// maxTuple is the maximum size of a key or of data in the kernel
// (NFT_DATA_VALUE_MAXLEN).
const maxTuple = 64

// Tuple is the value of a key or of data: one field, or the fields of a
// concatenation. The zero Tuple is empty. Methods append fields to it:
//
//	nft.Tuple{}.Addr(vip).Proto(unix.IPPROTO_TCP).Port(80)
//
// Each field takes a multiple of 4 bytes. Appending beyond 64 bytes panics.
// Tuples are comparable with ==.
type Tuple struct {
	n uint8
	b [maxTuple]byte
}

// Addr appends an IP address.
func (t Tuple) Addr(a netip.Addr) Tuple {
	b := a.As16() // IPv4 at the end
	return t.append(b[len(b)-a.BitLen()/8:])
}

// Proto appends an IP protocol number.
func (t Tuple) Proto(p uint8) Tuple { return t.append([]byte{p}) }

// Port appends a transport port.
func (t Tuple) Port(p uint16) Tuple { return t.append([]byte{byte(p >> 8), byte(p)}) }

// Integer appends an integer in host byte order, such as a priority.
func (t Tuple) Integer(v uint32) Tuple {
	var field [4]byte
	binary.NativeEndian.PutUint32(field[:], v)
	return t.append(field[:])
}

// FirstInteger returns the first field, which must be an integer in host byte
// order.
func (t Tuple) FirstInteger() uint32 { return binary.NativeEndian.Uint32(t.b[:]) }

// Raw appends the bytes of fields as they are in registers: each field takes
// a multiple of 4 bytes.
func (t Tuple) Raw(fields []byte) Tuple { return t.append(fields) }

// Bytes returns the bytes of all fields.
func (t Tuple) Bytes() []byte { return slices.Clone(t.b[:t.n]) }

func (t Tuple) append(field []byte) Tuple {
	room := nfnetlink.Align(len(field))
	if int(t.n)+room > maxTuple {
		panic(fmt.Sprintf("nft: tuple exceeds %d bytes", maxTuple))
	}
	copy(t.b[t.n:], field)
	t.n += uint8(room)
	return t
}

// compare orders tuples by their size, then by their bytes.
func (t Tuple) compare(o Tuple) int {
	return cmp.Or(cmp.Compare(t.n, o.n), bytes.Compare(t.b[:t.n], o.b[:o.n]))
}
