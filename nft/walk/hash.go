package walk

import (
	"encoding/binary"
	"math/bits"

	"github.com/google/nftables/expr"
)

// hash returns the number of a hash expression. If the values are not known,
// such as a source port, each number is equally likely.
func (p *Path) hash(e *expr.Hash) value {
	if e.Type == expr.HashTypeJenkins {
		if v := p.value(e.SourceRegister, int(e.Length)); v.unknown == nil {
			h, _ := bits.Mul32(jhash(v.bytes, e.Seed), e.Modulus) // reciprocal_scale
			return known(hostBytes(h + e.Offset))
		}
	}
	return drawn(e.DestRegister, e.Modulus, e.Offset)
}

// jhash is the function of the same name of the kernel (linux/jhash.h). It
// reads words in host byte order.
func jhash(key []byte, seed uint32) uint32 {
	const initval, words = 0xdeadbeef, 12
	a := initval + uint32(len(key)) + seed
	b, c := a, a
	for ; len(key) > words; key = key[words:] {
		a += binary.NativeEndian.Uint32(key)
		b += binary.NativeEndian.Uint32(key[4:])
		c += binary.NativeEndian.Uint32(key[8:])
		a, b, c = jhashMix(a, b, c)
	}
	if len(key) == 0 {
		return c
	}
	var last [words]byte // read as little-endian on all machines
	copy(last[:], key)
	a += binary.LittleEndian.Uint32(last[:])
	b += binary.LittleEndian.Uint32(last[4:])
	c += binary.LittleEndian.Uint32(last[8:])
	return jhashFinal(a, b, c)
}

func jhashMix(a, b, c uint32) (x, y, z uint32) {
	a = a - c ^ bits.RotateLeft32(c, 4)
	c += b
	b = b - a ^ bits.RotateLeft32(a, 6)
	a += c
	c = c - b ^ bits.RotateLeft32(b, 8)
	b += a
	a = a - c ^ bits.RotateLeft32(c, 16)
	c += b
	b = b - a ^ bits.RotateLeft32(a, 19)
	a += c
	c = c - b ^ bits.RotateLeft32(b, 4)
	b += a
	return a, b, c
}

func jhashFinal(a, b, c uint32) uint32 {
	c = c ^ b - bits.RotateLeft32(b, 14)
	a = a ^ c - bits.RotateLeft32(c, 11)
	b = b ^ a - bits.RotateLeft32(a, 25)
	c = c ^ b - bits.RotateLeft32(b, 16)
	a = a ^ c - bits.RotateLeft32(c, 4)
	b = b ^ a - bits.RotateLeft32(a, 14)
	return c ^ b - bits.RotateLeft32(b, 24)
}
