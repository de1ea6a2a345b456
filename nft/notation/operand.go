package notation

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// operand is a value in a register while a rule is written.
type operand struct {
	text      string // in nft syntax, "" for a constant and for an empty register
	typ       Type   // of constants with which the value is compared
	value     []byte // of a constant
	mask, xor []byte // of a bitwise expression
}

// expression returns the value, with its bitwise operation if it has one, or a
// constant of a type.
func (o operand) expression(t Type) string {
	if o.value != nil {
		return t.constant(o.value)
	}
	return o.text + o.bitwise()
}

// bitwise returns a bitwise operation: ` | 0x00004000`. The kernel stores all
// of them as a mask and an exclusive or.
func (o operand) bitwise() string {
	n := len(o.mask)
	if n == 0 || len(o.xor) != n {
		return ""
	}
	and, xor, or := make([]byte, n), make([]byte, n), make([]byte, n)
	for i := range n {
		or[i] = o.xor[i] &^ o.mask[i]
		xor[i] = o.xor[i] & o.mask[i]
		and[i] = o.mask[i] | or[i]
	}
	clears := slices.ContainsFunc(and, func(b byte) bool { return b != 0xff })
	return textIf(clears, " & "+o.typ.constant(and)) +
		textIf(!isZero(xor), " ^ "+o.typ.constant(xor)) + textIf(!isZero(or), " | "+o.typ.constant(or))
}

func isZero(b []byte) bool { return !slices.ContainsFunc(b, func(b byte) bool { return b != 0 }) }

// operatorText returns the operator between an expression and a constant in
// nft syntax, which omits equality.
func operatorText(op expr.CmpOp) string {
	if op == expr.CmpOpEq {
		return " "
	}
	return " " + NameOf(uint32(op), "==", "!=", "<", "<=", ">", ">=") + " "
}

// comparison returns the comparison of the value with a constant.
func (o operand) comparison(op expr.CmpOp, constant []byte) string {
	prefix, isPrefix := o.prefix(constant)
	switch {
	case isPrefix:
		return o.text + operatorText(op) + prefix
	case o.typ.bits && o.mask != nil && isZero(o.xor):
		return o.text + o.bitsComparison(op, constant)
	case op == expr.CmpOpEq && o.mask != nil:
		return o.text + o.bitwise() + " == " + o.typ.constant(constant)
	}
	return o.text + o.bitwise() + operatorText(op) + o.typ.constant(constant)
}

// prefix returns the prefix with which the value is compared. ok is false if it
// is not compared with a prefix.
func (o operand) prefix(constant []byte) (text string, ok bool) {
	t := o.typ
	if !t.prefixes || len(constant) > t.size || len(o.mask) > t.size || !isZero(o.xor) {
		return "", false
	}
	mask := []byte(net.CIDRMask(len(constant)*8, t.size*8))
	if o.mask != nil {
		mask = append(slices.Clone(o.mask), make([]byte, t.size-len(o.mask))...)
	}
	first := append(slices.Clone(constant), make([]byte, t.size-len(constant))...)
	n, size := net.IPMask(t.bigEndian(mask)).Size()
	for i, b := range first {
		if size == 0 || b&^mask[i] != 0 {
			return "", false
		}
	}
	if text = t.text(first); n < size {
		text += "/" + strconv.Itoa(n)
	}
	return text, true
}

// bitsComparison returns the comparison of masked bits: ` established,related`,
// ` syn / syn,ack`.
func (o operand) bitsComparison(op expr.CmpOp, constant []byte) string {
	mask := o.typ.constant(o.mask)
	switch {
	case isZero(constant) && op == expr.CmpOpNeq:
		return " " + mask
	case isZero(constant):
		return " ! " + mask
	}
	return operatorText(op) + o.typ.constant(constant) + " / " + mask
}

// metaOperands are facts about the packet.
var metaOperands = map[expr.MetaKey]operand{
	expr.MetaKeyL4PROTO: {text: "meta l4proto", typ: TypeInetProto},
	expr.MetaKeyNFPROTO: {text: "meta nfproto", typ: typeFamily},
	expr.MetaKeyMARK:    {text: "meta mark", typ: typeMark},
	expr.MetaKeyIIFNAME: {text: "iifname", typ: typeInterface},
	expr.MetaKeyOIFNAME: {text: "oifname", typ: typeInterface},
	expr.MetaKeyIIF:     {text: "iif", typ: TypeInteger},
	expr.MetaKeyOIF:     {text: "oif", typ: TypeInteger},
	expr.MetaKeyNFTRACE: {text: "meta nftrace", typ: namedType(1)},

	expr.MetaKeyPRIORITY: {text: "meta priority", typ: TypeClassID},
}

// ctOperands are facts about the connection.
var ctOperands = map[expr.CtKey]operand{
	expr.CtKeySTATE:     {text: "ct state", typ: typeCtState},
	expr.CtKeySTATUS:    {text: "ct status", typ: typeCtStatus},
	expr.CtKeyMARK:      {text: "ct mark", typ: typeMark},
	expr.CtKeyDIRECTION: {text: "ct direction", typ: typeDirection},
}

// directedOperands are facts about one direction of the connection.
var directedOperands = map[expr.CtKey]operand{
	expr.CtKeySRCIP:    {text: "ip saddr", typ: TypeIPv4Addr},
	expr.CtKeyDSTIP:    {text: "ip daddr", typ: TypeIPv4Addr},
	expr.CtKeySRCIP6:   {text: "ip6 saddr", typ: TypeIPv6Addr},
	expr.CtKeyDSTIP6:   {text: "ip6 daddr", typ: TypeIPv6Addr},
	expr.CtKeyPROTOSRC: {text: "proto-src", typ: TypeInetService},
	expr.CtKeyPROTODST: {text: "proto-dst", typ: TypeInetService},
}

// ctOperand returns a fact about the connection.
func ctOperand(e *expr.Ct) operand {
	o, ok := directedOperands[e.Key]
	if !ok {
		return ctOperands[e.Key]
	}
	o.text = "ct " + typeDirection.text([]byte{byte(e.Direction)}) + " " + o.text
	return o
}

// fibOperand returns the route to an address: `fib saddr . iif oif`.
func fibOperand(e *expr.Fib) operand {
	o := operand{typ: TypeInteger}
	o.text = "fib " + textIf(e.FlagSADDR, "saddr") + textIf(!e.FlagSADDR, "daddr") +
		textIf(e.FlagMARK, " . mark") + textIf(e.FlagIIF, " . iif") + textIf(e.FlagOIF, " . oif") +
		textIf(e.ResultOIF, " oif") + textIf(e.ResultOIFNAME, " oifname") + textIf(e.ResultADDRTYPE, " type")
	switch {
	case e.FlagPRESENT:
		o.typ = typePresence
	case e.ResultADDRTYPE:
		o.typ = typeRoute
	case e.ResultOIFNAME:
		o.typ = typeInterface
	}
	return o
}

// numgenOperand returns a number that the kernel draws.
func numgenOperand(e *expr.Numgen) operand {
	text := fmt.Sprintf("numgen %s mod %d", NameOf(e.Type, "inc", "random"), e.Modulus)
	return operand{text: text + unlessZero(" offset %d", e.Offset), typ: TypeInteger}
}

// hashOperand returns a hash of values.
func hashOperand(e *expr.Hash, of string) operand {
	text := "symhash"
	if e.Type == expr.HashTypeJenkins {
		text = "jhash " + of
	}
	text += fmt.Sprintf(" mod %d", e.Modulus) + unlessZero(" seed 0x%x", e.Seed) + unlessZero(" offset %d", e.Offset)
	return operand{text: text, typ: TypeInteger}
}

// unlessZero returns the text of a number, or "" for 0.
func unlessZero(format string, n uint32) string { return textIf(n != 0, fmt.Sprintf(format, n)) }

// textIf returns a text if a flag is set, or "".
func textIf(flag bool, text string) string {
	if flag {
		return text
	}
	return ""
}

// Header is a field of a packet header.
type Header struct {
	Name   string // in nft syntax
	Base   expr.PayloadBase
	Offset uint32
	Type   Type
}

// Header fields that have names. Only rules of other programs load the first
// two.
var (
	protocol = Header{"ip protocol", expr.PayloadBaseNetworkHeader, 9, TypeInetProto}
	nexthdr  = Header{"ip6 nexthdr", expr.PayloadBaseNetworkHeader, 6, TypeInetProto}

	Saddr  = Header{"ip saddr", expr.PayloadBaseNetworkHeader, 12, TypeIPv4Addr}
	Daddr  = Header{"ip daddr", expr.PayloadBaseNetworkHeader, 16, TypeIPv4Addr}
	Saddr6 = Header{"ip6 saddr", expr.PayloadBaseNetworkHeader, 8, TypeIPv6Addr}
	Daddr6 = Header{"ip6 daddr", expr.PayloadBaseNetworkHeader, 24, TypeIPv6Addr}
	Sport  = Header{"th sport", expr.PayloadBaseTransportHeader, 0, TypeInetService}
	Dport  = Header{"th dport", expr.PayloadBaseTransportHeader, 2, TypeInetService}

	TCPSequence = Header{"tcp sequence", expr.PayloadBaseTransportHeader, 4, typeSequence}
	TCPFlags    = Header{"tcp flags", expr.PayloadBaseTransportHeader, 13, typeTCPFlags}
)

var headers = []Header{protocol, nexthdr, Saddr, Daddr, Saddr6, Daddr6, Sport, Dport, TCPSequence, TCPFlags}

// Load returns the expression that loads the field into a register.
func (h Header) Load(register uint32) *expr.Payload {
	return &expr.Payload{DestRegister: register, Base: h.Base, Offset: h.Offset, Len: uint32(h.Type.size)}
}

// The kernel has 64 bytes of registers, which it numbers twice: in units of
// 16 bytes (NFT_REG_1 to NFT_REG_4) and of 4 bytes (NFT_REG32_00 to
// NFT_REG32_15). Both numberings begin at Reg1. The kernel lists a register
// with its number in units of 16 bytes, if it has one.
const (
	RegVerdict = unix.NFT_REG_VERDICT
	Reg1       = unix.NFT_REG_1
)

// Register returns the register at an offset from Reg1, a multiple of 4
// bytes.
func Register(offset int) uint32 {
	if offset%unix.NFT_REG_SIZE == 0 {
		return Reg1 + uint32(offset/unix.NFT_REG_SIZE)
	}
	return unix.NFT_REG32_00 + uint32(offset/unix.NFT_REG32_SIZE)
}

// RegisterOffset returns the offset of a register from Reg1, -1 for the
// verdict.
func RegisterOffset(register uint32) int {
	switch {
	case register >= unix.NFT_REG32_00:
		return int(register-unix.NFT_REG32_00) * unix.NFT_REG32_SIZE
	case register >= Reg1:
		return int(register-Reg1) * unix.NFT_REG_SIZE
	}
	return -1
}
