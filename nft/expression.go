package nft

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Expr is an expression: it loads a value of the packet, or a number, into a
// register. Expressions are the parts of a key that a rule looks up, and of
// keys that are declared by Typeof.
type Expr struct {
	text   string
	typ    Type
	load   func(reg uint32) expr.Any
	typeof []byte // user data that nft stores about the expression in a set
	proto  uint8  // protocol that the rule must match before, 0 for none
	mask   []byte // keeps some bits of the value; nil keeps all
}

// Numbers in the user data of nft: of expressions (enum expr_types),
// protocols (enum proto_desc_id) and header fields.
const (
	exprVerdict = 1
	exprPayload = 7
	exprMeta    = 9
	exprConcat  = 13
	exprNumgen  = 23

	descUDP       = 6
	descTCP       = 8
	descSCTP      = 10
	descTransport = 11
	descIPv4      = 12
	descIPv6      = 13

	fieldDport = 2 // of all transport protocols
)

// Saddr yields `ip saddr` or `ip6 saddr`.
func Saddr(f Family) Expr {
	if f == IPv4 {
		return addrExpr(f, "saddr", 12, descIPv4, 11)
	}
	return addrExpr(f, "saddr", 8, descIPv6, 8)
}

// Daddr yields `ip daddr` or `ip6 daddr`.
func Daddr(f Family) Expr {
	if f == IPv4 {
		return addrExpr(f, "daddr", 16, descIPv4, 12)
	}
	return addrExpr(f, "daddr", 24, descIPv6, 9)
}

// Network yields `ip saddr & 255.255.0.0`: the first bits of an address, which
// must be Saddr or Daddr.
func Network(addr Expr, bits int) Expr {
	if bits >= addr.typ.size*8 {
		return addr
	}
	addr.mask = prefixMask(addr.typ.size, bits)
	addr.text += " & " + addrText(addr.mask)
	return addr
}

// prefixMask returns the mask of size bytes that keeps the first bits.
func prefixMask(size, bits int) []byte {
	mask := make([]byte, size)
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return mask
}

func addrExpr(f Family, name string, offset, desc, field uint32) Expr {
	return Expr{
		text:   f.String() + " " + name,
		typ:    TypeAddr(f),
		load:   payload(expr.PayloadBaseNetworkHeader, offset, uint32(f.addrLen())),
		typeof: typeofPayload(desc, field),
	}
}

// ThDport yields `th dport`: the destination port of any transport protocol.
func ThDport() Expr {
	return Expr{
		text:   "th dport",
		typ:    TypeInetService,
		load:   payload(expr.PayloadBaseTransportHeader, 2, 2),
		typeof: typeofPayload(descTransport, fieldDport),
	}
}

// Dport yields `tcp dport`, `udp dport` or `sctp dport`. A rule that uses it
// matches the protocol first. For other protocols it is ThDport.
func Dport(proto uint8) Expr {
	e := ThDport()
	desc, ok := map[uint8]uint32{
		unix.IPPROTO_TCP: descTCP, unix.IPPROTO_UDP: descUDP, unix.IPPROTO_SCTP: descSCTP,
	}[proto]
	if ok {
		e.text = protocolName(proto) + " dport"
		e.typeof = typeofPayload(desc, fieldDport)
		e.proto = proto
	}
	return e
}

func payload(base expr.PayloadBase, offset, length uint32) func(uint32) expr.Any {
	return func(reg uint32) expr.Any {
		return &expr.Payload{DestRegister: reg, Base: base, Offset: offset, Len: length}
	}
}

// L4Proto yields `meta l4proto`.
func L4Proto() Expr {
	return Expr{
		text:   "meta l4proto",
		typ:    TypeInetProto,
		load:   func(reg uint32) expr.Any { return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg} },
		typeof: userdata{}.u32(0, exprMeta).nested(1, userdata{}.u32(0, uint32(expr.MetaKeyL4PROTO))),
	}
}

// Random yields `numgen random mod M offset O`: a random number from O to
// O+M-1. The kernel refuses M = 0.
func Random(mod, offset uint32) Expr { return numgen("random", unix.NFT_NG_RANDOM, mod, offset) }

// Constant yields `numgen inc mod 1 offset V`, which is always V. nft has no
// other constant inside a concatenation.
func Constant(v uint32) Expr { return numgen("inc", unix.NFT_NG_INCREMENTAL, 1, v) }

func numgen(name string, kind, mod, offset uint32) Expr {
	text := fmt.Sprintf("numgen %s mod %d", name, mod)
	if offset != 0 {
		text += fmt.Sprintf(" offset %d", offset)
	}
	return Expr{
		text: text,
		typ:  typeInteger,
		load: func(reg uint32) expr.Any {
			return &expr.Numgen{Register: reg, Type: kind, Modulus: mod, Offset: offset}
		},
		typeof: userdata{}.u32(0, exprNumgen).nested(1, userdata{}.u32(0, kind).u32(1, mod).u32(2, offset)),
	}
}

func typeofPayload(desc, field uint32) []byte {
	return userdata{}.u32(0, exprPayload).nested(1, userdata{}.u32(0, desc).u32(1, field))
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

// loadConcat matches the protocols that the expressions need, then loads the
// expressions into consecutive registers from reg1, as the kernel expects the
// fields of a key.
func loadConcat(exprs []Expr) []expr.Any {
	var out []expr.Any
	for _, e := range exprs {
		if e.proto != 0 {
			out = append(out, matchL4Proto(e.proto)...)
		}
	}
	offset := 0
	for _, e := range exprs {
		at := register(offset)
		out = append(out, e.load(at))
		if n := len(e.mask); n > 0 {
			out = append(out, &expr.Bitwise{
				SourceRegister: at, DestRegister: at, Len: uint32(n), Mask: e.mask, Xor: make([]byte, n),
			})
		}
		offset += e.typ.padded()
	}
	return out
}

func matchL4Proto(proto uint8) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: []byte{proto}},
	}
}

// matchBits matches packets whose 32-bit value in host byte order has at
// least one of the bits.
func matchBits(load expr.Any, bits uint32) []expr.Any {
	return []expr.Any{
		load,
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: hostU32(bits), Xor: hostU32(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: hostU32(0)},
	}
}

func hostU32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
