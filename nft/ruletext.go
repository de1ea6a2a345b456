package nft

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Text returns the rule as `nft --stateless list` prints it in a table of a
// family. Parts that the package does not know are written as `…`.
func (r Rule) Text(f Family) string {
	w := ruleWriter{family: f}
	for _, e := range r.Expressions {
		w.write(e)
	}
	if r.Comment != "" {
		w.add("comment " + quote(r.Comment))
	}
	return w.text()
}

const unknownPart = "…"

// ruleWriter writes the expressions of a rule in nft syntax.
type ruleWriter struct {
	family    Family
	registers [unix.NFT_REG32_COUNT]operand // by their offset from reg1, in units of 4 bytes
	parts     []string
	// network and transport are the protocols that the rule matched.
	network, transport matchedProtocol
	// from is the last expression, if it is the first half of a range.
	from *expr.Cmp
}

// matchedProtocol is a protocol that a rule matched. nft omits the match from
// the rule if a field of the protocol follows, because it adds the match when
// it loads the rule.
type matchedProtocol struct {
	number byte
	part   int // the number of the part with the match, from 1; 0 for none
}

func (w *ruleWriter) add(part string) { w.parts = append(w.parts, part) }

// text returns the parts of the rule, without those that nft omits.
func (w *ruleWriter) text() string {
	return strings.Join(slices.DeleteFunc(w.parts, func(s string) bool { return s == "" }), " ")
}

// slot returns the place of a register. If there is no such register, it
// returns another place.
func (w *ruleWriter) slot(register uint32) *operand {
	at := RegisterOffset(register)
	if at < 0 || at >= len(w.registers)*unix.NFT_REG32_SIZE {
		return &operand{}
	}
	return &w.registers[at/unix.NFT_REG32_SIZE]
}

func (w *ruleWriter) load(register uint32, o operand) { *w.slot(register) = o }

// at returns the operand in a register.
func (w *ruleWriter) at(register uint32) operand {
	o := *w.slot(register)
	if o.text == "" && o.value == nil {
		o.text = unknownPart
	}
	return o
}

func (w *ruleWriter) write(e expr.Any) {
	from := w.from
	w.from = nil
	switch e := e.(type) {
	case *expr.Payload:
		w.payload(e)
	case *expr.Meta:
		w.fact(metaOperands[e.Key], "meta", e.Register, e.SourceRegister)
	case *expr.Ct:
		w.fact(ctOperands[e.Key], "ct", e.Register, e.SourceRegister)
	case *expr.Fib:
		w.load(e.Register, fibOperand(e))
	case *expr.Numgen:
		w.load(e.Register, numgenOperand(e))
	case *expr.Hash:
		w.load(e.DestRegister, hashOperand(e, w.values(e.SourceRegister, int(e.Length))))
	case *expr.Immediate:
		w.load(e.Register, operand{value: e.Data})
	case *expr.Bitwise:
		o := w.at(e.SourceRegister)
		if o.mask != nil { // a second operation
			o = operand{text: o.expression(o.typ), typ: o.typ}
		}
		o.mask, o.xor = e.Mask, e.Xor
		w.load(e.DestRegister, o)
	case *expr.Cmp:
		w.compare(e, from)
	case *expr.Range:
		w.compareRange(e)
	case *expr.Lookup:
		w.lookup(e)
	case *expr.Dynset:
		w.update(e)
	default:
		w.add(w.action(e))
	}
}

// networkFamily returns the family of packets that reach the end of the rule so
// far, or Inet.
func (w *ruleWriter) networkFamily() Family {
	if w.family == Inet && w.network.part != 0 {
		return Family(w.network.number)
	}
	return w.family
}

// omit removes the match of a protocol.
func (w *ruleWriter) omit(p *matchedProtocol) {
	if p.part > 0 {
		w.parts[p.part-1] = ""
	}
}

// fact writes a statement that sets a fact about the packet or its connection,
// or loads the fact.
func (w *ruleWriter) fact(o operand, kind string, register uint32, set bool) {
	if o.text == "" {
		o = operand{text: kind + " " + unknownPart, typ: rawType(unix.NFT_REG32_SIZE)}
	}
	if set {
		w.add(o.text + " set " + w.at(register).expression(o.typ))
		return
	}
	w.load(register, o)
}

// compare writes a comparison. nft writes `>= 1` and then `<= 9` as `1-9`.
func (w *ruleWriter) compare(e, from *expr.Cmp) {
	o := w.at(e.Register)
	if from != nil && e.Op == expr.CmpOpLte && from.Register == e.Register {
		w.parts = w.parts[:len(w.parts)-1]
		w.compareRange(&expr.Range{Register: e.Register, FromData: from.Data, ToData: e.Data})
		return
	}
	w.add(o.comparison(e.Op, e.Data))
	if e.Op == expr.CmpOpGte {
		w.from = e
	}
	if e.Op != expr.CmpOpEq || len(e.Data) != 1 || o.mask != nil {
		return
	}
	switch o.text {
	case "meta l4proto", "ip protocol":
		w.transport = matchedProtocol{e.Data[0], len(w.parts)}
	case "meta nfproto":
		w.network = matchedProtocol{e.Data[0], len(w.parts)}
	}
}

func (w *ruleWriter) compareRange(e *expr.Range) {
	o := w.at(e.Register)
	w.add(o.text + o.bitwise() + operatorText(e.Op) + o.typ.constant(e.FromData) + "-" + o.typ.constant(e.ToData))
}

// key returns the values that make up a key from a register on, and removes
// them.
func (w *ruleWriter) key(register uint32) string {
	return w.values(register, len(w.registers)*unix.NFT_REG32_SIZE)
}

// values returns the values of at most size bytes from a register on, and
// removes them.
func (w *ruleWriter) values(register uint32, size int) string {
	var parts []string
	first := RegisterOffset(register)
	for at := first; at >= 0 && at < first+size; {
		slot := at / unix.NFT_REG32_SIZE
		if slot >= len(w.registers) || w.registers[slot].text == "" {
			break
		}
		o := w.registers[slot]
		w.registers[slot] = operand{}
		parts = append(parts, o.expression(o.typ))
		at += max(o.typ.padded(), unix.NFT_REG32_SIZE)
	}
	if len(parts) == 0 {
		return unknownPart
	}
	return strings.Join(parts, " . ")
}

func (w *ruleWriter) lookup(e *expr.Lookup) {
	key := w.key(e.SourceRegister)
	switch {
	case e.IsDestRegSet && e.DestRegister == regVerdict:
		w.add(key + " vmap @" + e.SetName)
	case e.IsDestRegSet:
		w.load(e.DestRegister, operand{text: key + " map @" + e.SetName})
	case e.Invert:
		w.add(key + " != @" + e.SetName)
	default:
		w.add(key + " @" + e.SetName)
	}
}

func (w *ruleWriter) update(e *expr.Dynset) {
	verb := nameOf(e.Operation, "add", "update", "delete")
	element := w.key(e.SrcRegKey)
	if e.Timeout != 0 {
		element += " timeout " + durationText(e.Timeout)
	}
	for _, attached := range e.Exprs {
		element += " " + w.action(attached)
	}
	if e.SrcRegData != 0 {
		element += " : " + w.at(e.SrcRegData).expression(typeInteger)
	}
	w.add(fmt.Sprintf("%s @%s { %s }", verb, e.SetName, element))
}

// action returns the text of an expression that neither loads nor compares a
// value.
func (w *ruleWriter) action(e expr.Any) string {
	switch e := e.(type) {
	case *expr.Verdict:
		return VerdictOf(e).String()
	case *expr.NAT:
		return w.nat(e)
	case *expr.Masq:
		return "masquerade" + natFlags(e.Random, e.FullyRandom, e.Persistent)
	case *expr.Reject:
		return w.reject(e)
	case *expr.Counter:
		return counterExpr
	case *expr.Objref:
		return nameOf(uint32(e.Type), "", "counter", "quota", "ct helper", "limit") + " name " + quote(e.Name)
	case *expr.Limit:
		return limitText(e)
	case *Extension:
		return extensionText(e)
	case *UnknownExpression:
		return e.Name + " " + unknownPart
	}
	return unknownPart
}

// nat returns the translation of an address, a port, or both.
func (w *ruleWriter) nat(e *expr.NAT) string {
	text := nameOf(uint32(e.Type), "snat", "dnat")
	var to string
	if e.RegAddrMin != 0 {
		addr := w.at(e.RegAddrMin)
		if w.family == Inet || addr.value == nil {
			text += " " + Family(e.Family).String()
		}
		if to = addr.text; addr.value != nil {
			to = w.addrRange(addr, e)
		}
	}
	if port := w.at(e.RegProtoMin); e.RegProtoMin != 0 && len(port.value) == 2 {
		to += ":" + portText(port.value)
	}
	if to != "" {
		text += " to " + to
	}
	return text + natFlags(e.Random, e.FullyRandom, e.Persistent)
}

// addrRange returns the addresses to which a rule translates.
func (w *ruleWriter) addrRange(first operand, e *expr.NAT) string {
	text := addrText(first.value)
	if e.RegAddrMax != 0 && e.RegAddrMax != e.RegAddrMin {
		return text + "-" + addrText(w.at(e.RegAddrMax).value)
	}
	if e.RegProtoMin != 0 && e.Family == unix.NFPROTO_IPV6 {
		return "[" + text + "]"
	}
	return text
}

func natFlags(random, fullyRandom, persistent bool) string {
	flags := textIf(random, ",random") + textIf(fullyRandom, ",fully-random") + textIf(persistent, ",persistent")
	return strings.Replace(flags, ",", " ", 1)
}

// textIf returns a text if a flag is set, or "".
func textIf(flag bool, text string) string {
	if flag {
		return text
	}
	return ""
}

// reject returns the answer to a packet. nft omits the usual one.
func (w *ruleWriter) reject(e *expr.Reject) string {
	code, f := uint32(e.Code), w.networkFamily()
	if w.family != Inet && e.Type == unix.NFT_REJECT_TCP_RST {
		w.omit(&w.transport)
	}
	if e.Type == unix.NFT_REJECT_ICMP_UNREACH {
		w.omit(&w.network)
	}
	switch {
	case e.Type == unix.NFT_REJECT_TCP_RST:
		return "reject with tcp reset"
	case e.Type == unix.NFT_REJECT_ICMPX_UNREACH && code != unix.NFT_REJECT_ICMPX_PORT_UNREACH:
		return "reject with icmpx " + nameOf(code, "no-route", "", "host-unreachable", "admin-prohibited")
	case e.Type != unix.NFT_REJECT_ICMP_UNREACH:
		return "reject"
	case f == IPv4 && (code != icmpPortUnreachable || w.family == Inet):
		return "reject with icmp " + nameOf(code, "net-unreachable", "host-unreachable", "prot-unreachable",
			"port-unreachable", "", "", "", "", "", "net-prohibited", "host-prohibited", "", "", "admin-prohibited")
	case f == IPv6 && (code != icmpv6PortUnreachable || w.family == Inet):
		return "reject with icmpv6 " + nameOf(code, "no-route", "admin-prohibited", "", "addr-unreachable",
			"port-unreachable", "policy-fail", "reject-route")
	}
	return "reject"
}

func extensionText(e *Extension) string {
	switch {
	case e.Target && e.Name == "REJECT":
		return "reject"
	case e.Target:
		return "xt target " + quote(e.Name)
	}
	return "xt match " + quote(e.Name)
}

// limitText returns `limit rate over 10/second burst 20 packets`.
func limitText(e *expr.Limit) string {
	const defaultBurst = 5 // which nft omits
	unit := map[expr.LimitTime]string{
		expr.LimitTimeSecond: "second", expr.LimitTimeMinute: "minute", expr.LimitTimeHour: "hour",
		expr.LimitTimeDay: "day", expr.LimitTimeWeek: "week",
	}[e.Unit]
	if unit == "" || e.Type != expr.LimitTypePkts {
		return "limit " + unknownPart
	}
	text := fmt.Sprintf("limit rate %s%d/%s", textIf(e.Over, "over "), e.Rate, unit)
	if e.Burst != defaultBurst {
		text += fmt.Sprintf(" burst %d packets", e.Burst)
	}
	return text
}

// durationText returns a duration as nft writes it, such as 1d2h3m4s5ms.
func durationText(d time.Duration) string {
	var b strings.Builder
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}

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

	expr.MetaKeyPRIORITY: {text: "meta priority", typ: TypeClassID},
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
