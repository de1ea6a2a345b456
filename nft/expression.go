package nft

import (
	"encoding/binary"
	"net"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Expr is an expression: it loads a value of the packet, or a number, into a
// register. Expressions are the parts of a key that a rule looks up.
type Expr struct {
	typ  Type
	load func(reg uint32) expr.Any
	mask []byte // keeps some bits of the value; nil keeps all
	of   []Expr // values that are loaded into the same registers first
}

// String returns the expression in nft syntax.
func (e Expr) String() string {
	var w ruleWriter
	for _, part := range loadConcat([]Expr{e}) {
		w.write(part)
	}
	return w.key(reg1)
}

// headerField is a field of a packet header.
type headerField struct {
	name   string // in nft syntax
	base   expr.PayloadBase
	offset uint32
	typ    Type
}

// Header fields that rules of this package load.
var (
	fieldSaddr  = headerField{"ip saddr", expr.PayloadBaseNetworkHeader, 12, TypeIPv4Addr}
	fieldDaddr  = headerField{"ip daddr", expr.PayloadBaseNetworkHeader, 16, TypeIPv4Addr}
	fieldSaddr6 = headerField{"ip6 saddr", expr.PayloadBaseNetworkHeader, 8, TypeIPv6Addr}
	fieldDaddr6 = headerField{"ip6 daddr", expr.PayloadBaseNetworkHeader, 24, TypeIPv6Addr}
	fieldSport  = headerField{"th sport", expr.PayloadBaseTransportHeader, 0, TypeInetService}
	fieldDport  = headerField{"th dport", expr.PayloadBaseTransportHeader, 2, TypeInetService}

	fieldTCPFlags = headerField{"tcp flags", expr.PayloadBaseTransportHeader, 13, typeTCPFlags}
)

func (h headerField) expr() Expr {
	return Expr{
		typ: h.typ,
		load: func(reg uint32) expr.Any {
			return &expr.Payload{DestRegister: reg, Base: h.base, Offset: h.offset, Len: uint32(h.typ.size)}
		},
	}
}

// Saddr yields `ip saddr` or `ip6 saddr`.
func Saddr(f Family) Expr { return ofFamily(f, fieldSaddr, fieldSaddr6).expr() }

// Daddr yields `ip daddr` or `ip6 daddr`.
func Daddr(f Family) Expr { return ofFamily(f, fieldDaddr, fieldDaddr6).expr() }

// Network yields `ip saddr & 255.255.0.0`: the first bits of an address, which
// must be Saddr or Daddr.
func Network(addr Expr, bits int) Expr {
	if bits >= addr.typ.size*8 {
		return addr
	}
	addr.mask = net.CIDRMask(bits, addr.typ.size*8)
	return addr
}

// ThDport yields `th dport`: the destination port of any transport protocol.
func ThDport() Expr { return fieldDport.expr() }

// ThSport yields `th sport`: the source port of any transport protocol.
func ThSport() Expr { return fieldSport.expr() }

// L4Proto yields `meta l4proto`.
func L4Proto() Expr {
	return Expr{
		typ:  TypeInetProto,
		load: func(reg uint32) expr.Any { return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg} },
	}
}

// Priority yields `meta priority`: the priority of the packet, for which nft
// writes a class of traffic control.
func Priority() Expr {
	return Expr{
		typ:  TypeClassID,
		load: func(reg uint32) expr.Any { return &expr.Meta{Key: expr.MetaKeyPRIORITY, Register: reg} },
	}
}

// Random yields `numgen random mod M offset O`: a random number from O to
// O+M-1. The kernel refuses M = 0.
func Random(mod, offset uint32) Expr {
	return Expr{
		typ: typeInteger,
		load: func(reg uint32) expr.Any {
			return &expr.Numgen{Register: reg, Type: unix.NFT_NG_RANDOM, Modulus: mod, Offset: offset}
		},
	}
}

// Jhash yields `jhash ip saddr . th sport mod M seed S offset O`: a number from
// O to O+M-1 that depends on the values of the expressions only. The kernel
// refuses M = 0. It must be the last part of a key.
func Jhash(mod, seed, offset uint32, of ...Expr) Expr {
	length := 0
	for _, e := range of {
		length += e.typ.padded()
	}
	return Expr{
		typ: typeInteger,
		of:  of,
		load: func(reg uint32) expr.Any {
			return &expr.Hash{
				SourceRegister: reg, DestRegister: reg, Length: uint32(length),
				Modulus: mod, Seed: seed, Offset: offset, Type: expr.HashTypeJenkins,
			}
		},
	}
}

// The kernel has 64 bytes of registers, which it numbers twice: in units of
// 16 bytes (NFT_REG_1 to NFT_REG_4) and of 4 bytes (NFT_REG32_00 to
// NFT_REG32_15). Both numberings begin at reg1. The kernel lists a register
// with its number in units of 16 bytes, if it has one.
const (
	regVerdict = unix.NFT_REG_VERDICT
	reg1       = unix.NFT_REG_1
)

// register returns the register at an offset from reg1, a multiple of 4
// bytes.
func register(offset int) uint32 {
	if offset%unix.NFT_REG_SIZE == 0 {
		return reg1 + uint32(offset/unix.NFT_REG_SIZE)
	}
	return unix.NFT_REG32_00 + uint32(offset/unix.NFT_REG32_SIZE)
}

// RegisterOffset returns the offset of a register from the first one, -1 for
// the verdict.
func RegisterOffset(register uint32) int {
	switch {
	case register >= unix.NFT_REG32_00:
		return int(register-unix.NFT_REG32_00) * unix.NFT_REG32_SIZE
	case register >= reg1:
		return int(register-reg1) * unix.NFT_REG_SIZE
	}
	return -1
}

// loadConcat loads expressions into consecutive registers from reg1, as the
// kernel expects the fields of a key.
func loadConcat(exprs []Expr) []expr.Any { return loadAt(0, exprs) }

// loadAt loads expressions into consecutive registers from an offset.
func loadAt(offset int, exprs []Expr) (out []expr.Any) {
	for _, e := range exprs {
		at := register(offset)
		out = append(append(out, loadAt(offset, e.of)...), e.load(at))
		if e.mask != nil {
			out = append(out, masked(at, e.mask))
		}
		offset += e.typ.padded()
	}
	return out
}

// bitwise keeps the bits of a mask in a register, and flips the bits of xor.
func bitwise(register uint32, mask, xor []byte) *expr.Bitwise {
	return &expr.Bitwise{
		SourceRegister: register, DestRegister: register, Len: uint32(len(mask)), Mask: mask, Xor: xor,
	}
}

// masked keeps the bits of a mask in a register.
func masked(register uint32, mask []byte) *expr.Bitwise {
	return bitwise(register, mask, make([]byte, len(mask)))
}

// compare compares reg1 with a constant.
func compare(op expr.CmpOp, constant []byte) *expr.Cmp {
	return &expr.Cmp{Op: op, Register: reg1, Data: constant}
}

// meta loads a fact about the packet into reg1.
func meta(key expr.MetaKey) *expr.Meta { return &expr.Meta{Key: key, Register: reg1} }

func hostU32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
