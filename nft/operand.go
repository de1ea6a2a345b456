package nft

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// operand is a value in a register while a rule is written.
type operand struct {
	text      string // in nft syntax, "" for a constant and for an empty register
	typ       Type   // of constants with which the value is compared
	value     []byte // of a constant
	mask, xor []byte // of a bitwise expression
}

// Types of values that are not in sets of this package.
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
	typeTCPFlags = bitsType(1, "fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr")
)

// namedType is a type whose values have names, from 0.
func namedType(size int, names ...string) Type {
	return Type{size: size, order: orderHost,
		text: func(value []byte) string { return nameOf(number(value), names...) }}
}

// nameOf returns the name of a number, or the number if it has none.
func nameOf(n uint32, names ...string) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return strconv.FormatUint(uint64(n), 10)
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
	if len(value) < unix.IFNAMSIZ {
		return quote(cString(value) + "*")
	}
	return quote(cString(value))
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
	return " " + nameOf(uint32(op), "==", "!=", "<", "<=", ">", ">=") + " "
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

// headerFields are the header fields that have names. Only rules of other
// programs load the first two.
var headerFields = []headerField{
	{name: "ip protocol", base: expr.PayloadBaseNetworkHeader, offset: 9, typ: TypeInetProto},
	{name: "ip6 nexthdr", base: expr.PayloadBaseNetworkHeader, offset: 6, typ: TypeInetProto},
	fieldSaddr, fieldDaddr, fieldSaddr6, fieldDaddr6, fieldSport, fieldDport, fieldTCPFlags,
}

func (w *ruleWriter) payload(e *expr.Payload) {
	if e.OperationType != expr.PayloadLoad {
		w.add(unknownPart)
		return
	}
	for _, f := range headerFields {
		if f.base != e.Base || f.offset != e.Offset || int(e.Len) > f.typ.size {
			continue
		}
		if name, ok := w.fieldName(f, int(e.Len) == f.typ.size); ok {
			w.load(e.DestRegister, operand{text: name, typ: f.typ})
			return
		}
	}
	const bits = 8
	base := [...]string{"ll", "nh", "th"}
	text := unknownPart
	if int(e.Base) < len(base) {
		text = fmt.Sprintf("@%s,%d,%d", base[e.Base], e.Offset*bits, e.Len*bits)
	}
	w.load(e.DestRegister, operand{text: text, typ: rawType(int(e.Len))})
}

// fieldName returns the name of a header field that a rule loads, whole or in
// part. ok is false if the packet does not have the field.
func (w *ruleWriter) fieldName(f headerField, whole bool) (name string, ok bool) {
	protocol, field, _ := strings.Cut(f.name, " ")
	switch protocol {
	case "th":
		if slices.Contains([]byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP}, w.transport.number) {
			w.omit(&w.transport)
			return nfnetlink.ProtocolName(w.transport.number) + " " + field, whole
		}
		return f.name, whole
	case "tcp":
		if w.transport.number == unix.IPPROTO_TCP {
			w.omit(&w.transport)
			return f.name, whole
		}
		return "", false
	}
	switch network := w.networkFamily(); network {
	case IPv4, IPv6:
		ok = network.String() == protocol
	default: // the position and length determine it
		ok = whole
	}
	if ok {
		w.omit(&w.network)
	}
	return f.name, ok
}

// numgenOperand returns a number that the kernel draws.
func numgenOperand(e *expr.Numgen) operand {
	text := fmt.Sprintf("numgen %s mod %d", nameOf(e.Type, "inc", "random"), e.Modulus)
	return operand{text: text + unlessZero(" offset %d", e.Offset), typ: typeInteger}
}

// unlessZero returns the text of a number, or "" for 0.
func unlessZero(format string, n uint32) string { return textIf(n != 0, fmt.Sprintf(format, n)) }

// hashOperand returns a hash of values.
func hashOperand(e *expr.Hash, of string) operand {
	text := "symhash"
	if e.Type == expr.HashTypeJenkins {
		text = "jhash " + of
	}
	text += fmt.Sprintf(" mod %d", e.Modulus) + unlessZero(" seed 0x%x", e.Seed) + unlessZero(" offset %d", e.Offset)
	return operand{text: text, typ: typeInteger}
}

// metaOperands are facts about the packet.
var metaOperands = map[expr.MetaKey]operand{
	expr.MetaKeyL4PROTO: {text: "meta l4proto", typ: TypeInetProto},
	expr.MetaKeyNFPROTO: {text: "meta nfproto", typ: typeFamily},
	expr.MetaKeyMARK:    {text: "meta mark", typ: typeMark},
	expr.MetaKeyIIFNAME: {text: "iifname", typ: typeInterface},
	expr.MetaKeyOIFNAME: {text: "oifname", typ: typeInterface},
	expr.MetaKeyIIF:     {text: "iif", typ: typeInteger},
	expr.MetaKeyOIF:     {text: "oif", typ: typeInteger},
	expr.MetaKeyNFTRACE: {text: "meta nftrace", typ: namedType(1)},
}

// ctOperands are facts about the connection.
var ctOperands = map[expr.CtKey]operand{
	expr.CtKeySTATE:     {text: "ct state", typ: typeCtState},
	expr.CtKeySTATUS:    {text: "ct status", typ: typeCtStatus},
	expr.CtKeyMARK:      {text: "ct mark", typ: typeMark},
	expr.CtKeyDIRECTION: {text: "ct direction", typ: typeDirection},
}

// fibOperand returns the route to an address: `fib saddr . iif oif`.
func fibOperand(e *expr.Fib) operand {
	o := operand{typ: typeInteger}
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
