package nfnetlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// AttrHeaderLen is the length of the header of an attribute (struct nlattr).
const AttrHeaderLen = unix.SizeofNlAttr

// EachAttr calls f with the type and value of each attribute in b. It stops
// at the first incomplete attribute.
func EachAttr(b []byte, f func(typ uint16, value []byte)) {
	EachAttrAt(b, 0, func(typ uint16, from, to int) { f(typ, b[from+AttrHeaderLen:to]) })
}

// EachAttrAt calls f with the type and the position of each attribute in b,
// starting at offset at. It stops at the first incomplete attribute.
func EachAttrAt(b []byte, at int, f func(typ uint16, from, to int)) {
	for at+AttrHeaderLen <= len(b) {
		n := int(binary.NativeEndian.Uint16(b[at:]))
		if n < AttrHeaderLen || at+n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[at+2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), at, at+n)
		at += Align(n)
	}
}

// Attr returns the value of the last attribute of type want in b, or nil.
func Attr(b []byte, want uint16) (found []byte) {
	EachAttr(b, func(typ uint16, value []byte) {
		if typ == want {
			found = value
		}
	})
	return found
}

// Align returns the length that n bytes take in a message.
func Align(n int) int { return (n + 3) &^ 3 }

// Uint8 decodes a number. It returns 0 if b has another length, as the
// functions for larger numbers in network byte order do.
func Uint8(b []byte) uint8 { return decode(b, 1, func(b []byte) uint8 { return b[0] }) }

// Uint16 is Uint8 for 16 bits.
func Uint16(b []byte) uint16 { return decode(b, 2, binary.BigEndian.Uint16) }

// Uint32 is Uint8 for 32 bits.
func Uint32(b []byte) uint32 { return decode(b, 4, binary.BigEndian.Uint32) }

// Uint64 is Uint8 for 64 bits.
func Uint64(b []byte) uint64 { return decode(b, 8, binary.BigEndian.Uint64) }

func decode[T any](b []byte, size int, number func([]byte) T) (n T) {
	if len(b) == size {
		n = number(b)
	}
	return n
}
