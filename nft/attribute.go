package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Attributes of linux/netfilter/nf_tables.h that golang.org/x/sys/unix does
// not define, with the Linux version that introduced them.
const (
	nftaTableHandle   = 4  // 4.17
	nftaTableUserdata = 6  // 5.10
	nftaSetHandle     = 16 // 4.17
	nftaSetExpr       = 17 // 5.7
	nftaObjHandle     = 6  // 4.17
	nftaSetCount      = 20 // 6.15
	nftaSetDescConcat = 2  // 5.6
	nftaSetFieldLen   = 1  // 5.6
	nftaElemKeyEnd    = 10 // 5.6
)

// eachAttr calls f with the type and value of each attribute in b. It stops
// at the first incomplete attribute.
func eachAttr(b []byte, f func(typ uint16, value []byte)) {
	eachAttrAt(b, 0, func(typ uint16, from, to int) { f(typ, b[from+attrHeaderLen:to]) })
}

// eachAttrAt calls f with the type and the position of each attribute in b,
// starting at offset at. It stops at the first incomplete attribute.
func eachAttrAt(b []byte, at int, f func(typ uint16, from, to int)) {
	for at+attrHeaderLen <= len(b) {
		n := int(binary.NativeEndian.Uint16(b[at:]))
		if n < attrHeaderLen || at+n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[at+2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), at, at+n)
		at += align4(n)
	}
}

// attr returns the value of the last attribute of type want in b, or nil.
func attr(b []byte, want uint16) (found []byte) {
	eachAttr(b, func(typ uint16, value []byte) {
		if typ == want {
			found = value
		}
	})
	return found
}

// be32 decodes a number in network byte order. It returns 0 if b has another
// length.
func be32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// be64 is be32 for 64 bits.
func be64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// cString decodes a string that ends at the first NUL, if it has one.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
