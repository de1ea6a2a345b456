package notation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Rule returns the expressions of a rule as `nft --stateless list` prints it in
// a table of a family, and its comment. Parts that the package does not know
// are written as `…`. An expression that is a fmt.Stringer is written as such.
func Rule(f nfnetlink.Family, expressions []expr.Any, comment string) string {
	w := ruleWriter{family: f}
	for _, e := range expressions {
		w.write(e)
	}
	if comment != "" {
		w.add("comment " + Quote(comment))
	}
	return w.text()
}

// Key returns the values that expressions load into registers from the first
// one, as nft writes a key: `ip daddr . th dport`.
func Key(load []expr.Any) string {
	var w ruleWriter
	for _, e := range load {
		w.write(e)
	}
	return w.key(Reg1)
}

const unknownPart = "…"

// ruleWriter writes the expressions of a rule in nft syntax.
type ruleWriter struct {
	family    nfnetlink.Family
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
		w.fact(ctOperand(e), "ct", e.Register, e.SourceRegister)
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
// far, or nfnetlink.Inet.
func (w *ruleWriter) networkFamily() nfnetlink.Family {
	if w.family == nfnetlink.Inet && w.network.part != 0 {
		return nfnetlink.Family(w.network.number)
	}
	return w.family
}

// omit removes the match of a protocol.
func (w *ruleWriter) omit(p *matchedProtocol) {
	if p.part > 0 {
		w.parts[p.part-1] = ""
	}
}

func (w *ruleWriter) payload(e *expr.Payload) {
	if e.OperationType != expr.PayloadLoad {
		w.add(unknownPart)
		return
	}
	for _, f := range headers {
		if f.Base != e.Base || f.Offset != e.Offset || int(e.Len) > f.Type.size {
			continue
		}
		if name, ok := w.fieldName(f, int(e.Len) == f.Type.size); ok {
			w.load(e.DestRegister, operand{text: name, typ: f.Type})
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
func (w *ruleWriter) fieldName(f Header, whole bool) (name string, ok bool) {
	protocol, field, _ := strings.Cut(f.Name, " ")
	switch protocol {
	case "th":
		if slices.Contains([]byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP}, w.transport.number) {
			w.omit(&w.transport)
			return nfnetlink.ProtocolName(w.transport.number) + " " + field, whole
		}
		return f.Name, whole
	case "tcp":
		if w.transport.number == unix.IPPROTO_TCP {
			w.omit(&w.transport)
			return f.Name, whole
		}
		return "", false
	}
	switch network := w.networkFamily(); network {
	case nfnetlink.IPv4, nfnetlink.IPv6:
		ok = network.String() == protocol
	default: // the position and length determine it
		ok = whole
	}
	if ok {
		w.omit(&w.network)
	}
	return f.Name, ok
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
		at += max(o.typ.Padded(), unix.NFT_REG32_SIZE)
	}
	if len(parts) == 0 {
		return unknownPart
	}
	return strings.Join(parts, " . ")
}

func (w *ruleWriter) lookup(e *expr.Lookup) {
	key := w.key(e.SourceRegister)
	switch {
	case e.IsDestRegSet && e.DestRegister == RegVerdict:
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
	verb := NameOf(e.Operation, "add", "update", "delete")
	element := w.key(e.SrcRegKey)
	if e.Timeout != 0 {
		element += " timeout " + durationText(e.Timeout)
	}
	for _, attached := range e.Exprs {
		element += " " + w.action(attached)
	}
	if e.SrcRegData != 0 {
		element += " : " + w.at(e.SrcRegData).expression(TypeInteger)
	}
	w.add(fmt.Sprintf("%s @%s { %s }", verb, e.SetName, element))
}
