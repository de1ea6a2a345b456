package nft

import (
	"encoding/binary"
	"net"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/notation"
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
func (e Expr) String() string { return notation.Key(loadConcat([]Expr{e})) }

// header loads a field of a packet header.
func header(h notation.Header) Expr {
	return Expr{typ: h.Type, load: func(register uint32) expr.Any { return h.Load(register) }}
}

// Saddr yields `ip saddr` or `ip6 saddr`.
func Saddr(f Family) Expr { return header(ofFamily(f, notation.Saddr, notation.Saddr6)) }

// Daddr yields `ip daddr` or `ip6 daddr`.
func Daddr(f Family) Expr { return header(ofFamily(f, notation.Daddr, notation.Daddr6)) }

// Network yields `ip saddr & 255.255.0.0`: the first bits of an address, which
// must be Saddr or Daddr.
func Network(addr Expr, bits int) Expr {
	if bits >= addr.typ.Size()*8 {
		return addr
	}
	addr.mask = net.CIDRMask(bits, addr.typ.Size()*8)
	return addr
}

// ThDport yields `th dport`: the destination port of any transport protocol.
func ThDport() Expr { return header(notation.Dport) }

// ThSport yields `th sport`: the source port of any transport protocol.
func ThSport() Expr { return header(notation.Sport) }

// L4Proto yields `meta l4proto`.
func L4Proto() Expr {
	return Expr{
		typ:  TypeInetProto,
		load: func(reg uint32) expr.Any { return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg} },
	}
}

// OriginalDaddr yields `ct original ip daddr` or `ct original ip6 daddr`: the
// destination of the connection before its translation.
func OriginalDaddr(f Family) Expr {
	return original(TypeAddr(f), ofFamily(f, expr.CtKeyDSTIP, expr.CtKeyDSTIP6))
}

// OriginalDport yields `ct original proto-dst`: the destination port of the
// connection before its translation.
func OriginalDport() Expr { return original(TypeInetService, expr.CtKeyPROTODST) }

func original(t Type, key expr.CtKey) Expr {
	return Expr{typ: t, load: func(reg uint32) expr.Any {
		return &expr.Ct{Key: key, Register: reg, Direction: expr.CtDirOriginal}
	}}
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
		typ: notation.TypeInteger,
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
		length += e.typ.Padded()
	}
	return Expr{
		typ: notation.TypeInteger,
		of:  of,
		load: func(reg uint32) expr.Any {
			return &expr.Hash{
				SourceRegister: reg, DestRegister: reg, Length: uint32(length),
				Modulus: mod, Seed: seed, Offset: offset, Type: expr.HashTypeJenkins,
			}
		},
	}
}

// reg1 is the first register, from which statements load values.
const reg1 = notation.Reg1

// loadConcat loads expressions into consecutive registers from reg1, as the
// kernel expects the fields of a key.
func loadConcat(exprs []Expr) []expr.Any { return loadAt(0, exprs) }

// loadAt loads expressions into consecutive registers from an offset.
func loadAt(offset int, exprs []Expr) (out []expr.Any) {
	for _, e := range exprs {
		at := notation.Register(offset)
		out = append(append(out, loadAt(offset, e.of)...), e.load(at))
		if e.mask != nil {
			out = append(out, masked(at, e.mask))
		}
		offset += e.typ.Padded()
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
