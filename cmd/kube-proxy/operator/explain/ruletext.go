package explain

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// operand is a value in a register, as nft writes it.
type operand struct {
	text string
	// constant returns a constant that the value is compared with.
	constant  func(value []byte) string
	value     []byte // of an immediate
	mask, xor []byte // of a bitwise expression
}

// ruleWriter writes a rule in nft syntax, from its expressions.
type ruleWriter struct {
	family   nft.Family
	set      func(name string) (*nft.Set, error)
	operands map[int]operand // by the offset of their register
	parts    []string
}

// ruleText returns a rule in nft syntax.
func ruleText(f nft.Family, rule nft.RuleExpressions, set func(string) (*nft.Set, error)) (string, error) {
	w := ruleWriter{family: f, set: set, operands: make(map[int]operand)}
	for _, e := range rule.Expressions {
		if err := w.write(e); err != nil {
			return "", err
		}
	}
	if rule.Comment != "" {
		w.parts = append(w.parts, "comment "+strconv.Quote(rule.Comment))
	}
	return strings.Join(w.parts, " "), nil
}

func (w *ruleWriter) add(format string, args ...any) error {
	w.parts = append(w.parts, fmt.Sprintf(format, args...))
	return nil
}

func (w *ruleWriter) load(register uint32, o operand) error {
	at, err := registerAt(register, 0)
	w.operands[at] = o
	return err
}

func (w *ruleWriter) operand(register uint32) operand {
	at, _ := registerAt(register, 0)
	return w.operands[at]
}

func (w *ruleWriter) write(e expr.Any) error {
	switch e := e.(type) {
	case *expr.Payload:
		return w.payload(e)
	case *expr.Meta:
		return w.meta(e)
	case *expr.Ct:
		return w.load(e.Register, operand{text: ctName(e.Key), constant: hexText})
	case *expr.Fib:
		return w.load(e.Register, operand{text: fibName(e), constant: routeTypeName})
	case *expr.Numgen:
		return w.load(e.Register, operand{text: numgenText(e), constant: integerText})
	case *expr.Immediate:
		return w.load(e.Register, operand{value: e.Data})
	case *expr.Bitwise:
		o := w.operand(e.SourceRegister)
		o.mask, o.xor = e.Mask, e.Xor
		return w.load(e.DestRegister, o)
	case *expr.Cmp:
		return w.add("%s", w.comparison(e))
	case *expr.Lookup:
		return w.lookup(e)
	case *expr.Dynset:
		return w.update(e)
	}
	return w.add("%s", w.statement(e))
}

// statement returns the text of an expression that no other one refers to.
func (w *ruleWriter) statement(e expr.Any) string {
	switch e := e.(type) {
	case *expr.Verdict:
		return verdictOf(e).String()
	case *expr.NAT:
		return w.nat(e)
	case *expr.Masq:
		if e.FullyRandom {
			return "masquerade fully-random"
		}
		return "masquerade"
	case *expr.Reject:
		if e.Type == unix.NFT_REJECT_TCP_RST {
			return "reject with tcp reset"
		}
		return "reject"
	case *expr.Counter:
		return "counter"
	case *expr.Objref:
		return "counter name " + strconv.Quote(e.Name)
	}
	return fmt.Sprintf("%T", e)
}

func (w *ruleWriter) payload(e *expr.Payload) error {
	known, err := fieldOf(w.family, e)
	if err != nil {
		return err
	}
	if known.name == "dport" {
		return w.load(e.DestRegister, operand{text: "th dport", constant: portText})
	}
	return w.load(e.DestRegister, operand{text: w.family.String() + " " + known.name})
}

func (w *ruleWriter) meta(e *expr.Meta) error {
	if e.SourceRegister {
		return w.add("meta mark set %s", maskText(w.operand(e.Register)))
	}
	switch e.Key {
	case expr.MetaKeyL4PROTO:
		name := func(value []byte) string { return ProtocolName(value[0]) }
		return w.load(e.Register, operand{text: "meta l4proto", constant: name})
	case expr.MetaKeyMARK:
		return w.load(e.Register, operand{text: "meta mark", constant: hexText})
	case expr.MetaKeyIIFNAME:
		return w.load(e.Register, operand{text: "iifname", constant: interfaceText})
	}
	return w.load(e.Register, operand{text: fmt.Sprintf("meta %d", e.Key), constant: hexText})
}

// maskText returns an operand that a bitwise expression changed: `meta mark |
// 0x00004000`.
func maskText(o operand) string {
	if len(o.mask) != slotBytes || len(o.xor) != slotBytes {
		return o.text
	}
	mask, xor := binary.NativeEndian.Uint32(o.mask), binary.NativeEndian.Uint32(o.xor)
	switch {
	case xor == 0:
		return fmt.Sprintf("%s & 0x%08x", o.text, mask)
	case mask == ^xor:
		return fmt.Sprintf("%s | 0x%08x", o.text, xor)
	case mask == ^uint32(0):
		return fmt.Sprintf("%s ^ 0x%08x", o.text, xor)
	}
	return fmt.Sprintf("%s & 0x%08x ^ 0x%08x", o.text, mask, xor)
}

func (w *ruleWriter) comparison(e *expr.Cmp) string {
	o := w.operand(e.Register)
	operator := map[expr.CmpOp]string{
		expr.CmpOpNeq: " != ", expr.CmpOpLt: " < ", expr.CmpOpLte: " <= ", expr.CmpOpGt: " > ", expr.CmpOpGte: " >= ",
	}[e.Op]
	if operator == "" {
		operator = " "
	}
	if o.constant == nil { // an address
		return o.text + operator + w.prefix(e.Data, o.mask)
	}
	if e.Op == expr.CmpOpNeq {
		switch o.text + string(o.mask) {
		case "ct status" + string(hostBytes(ctStatusNAT)):
			return "ct status dnat"
		case "ct state" + string(hostBytes(ctStateNew)):
			return "ct state new"
		}
	}
	return maskText(o) + operator + o.constant(e.Data)
}

// prefix returns the text of the addresses that begin with these bytes.
func (w *ruleWriter) prefix(value, mask []byte) string {
	p := prefixOf(w.family, value, mask)
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// prefixOf returns the prefix of the addresses that begin with these bytes, or
// whose masked bytes are these.
func prefixOf(f nft.Family, value, mask []byte) netip.Prefix {
	full := make([]byte, slotBytes)
	if f == nft.IPv6 {
		full = make([]byte, 4*slotBytes)
	}
	copy(full, value)
	addr, _ := netip.AddrFromSlice(full)
	ones := len(value) * 8
	if mask != nil {
		ones = 0
		for _, b := range mask {
			ones += bits.OnesCount8(b)
		}
	}
	return netip.PrefixFrom(addr, ones)
}

// key returns the operands that make up a key of a set.
func (w *ruleWriter) key(register uint32, set *nft.Set) string {
	at, _ := registerAt(register, 0)
	var parts []string
	for offset := at; offset < at+set.Key.Size(); offset += slotBytes {
		o := w.operands[offset]
		if o.text != "" && o.constant == nil && o.mask != nil { // an address
			mask, _ := netip.AddrFromSlice(o.mask)
			o.text += " & " + mask.String()
		}
		if o.text != "" {
			parts = append(parts, o.text)
		}
	}
	return strings.Join(parts, " . ")
}

func (w *ruleWriter) lookup(e *expr.Lookup) error {
	set, err := w.set(e.SetName)
	if err != nil {
		return err
	}
	key := w.key(e.SourceRegister, set)
	clear(w.operands) // the next expressions load their own
	switch {
	case e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT:
		return w.add("%s vmap @%s", key, e.SetName)
	case e.IsDestRegSet:
		return w.load(e.DestRegister, operand{text: key + " map @" + e.SetName})
	case e.Invert:
		return w.add("%s != @%s", key, e.SetName)
	}
	return w.add("%s @%s", key, e.SetName)
}

func (w *ruleWriter) update(e *expr.Dynset) error {
	set, err := w.set(e.SetName)
	if err != nil {
		return err
	}
	key := w.key(e.SrcRegKey, set)
	clear(w.operands)
	if e.Timeout != 0 {
		key += " timeout " + timeoutText(e.Timeout)
	}
	return w.add("update @%s { %s }", e.SetName, key)
}

func timeoutText(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

func (w *ruleWriter) nat(e *expr.NAT) string {
	addr, port := w.operand(e.RegAddrMin), w.operand(e.RegProtoMin)
	if addr.text != "" {
		return fmt.Sprintf("dnat %s to %s", w.family, addr.text)
	}
	to, _ := netip.AddrFromSlice(addr.value)
	if len(port.value) < 2 {
		return "dnat to " + to.String()
	}
	return "dnat to " + netip.AddrPortFrom(to, binary.BigEndian.Uint16(port.value)).String()
}

func numgenText(e *expr.Numgen) string {
	text := "numgen random mod "
	if e.Type == unix.NFT_NG_INCREMENTAL {
		text = "numgen inc mod "
	}
	text += fmt.Sprint(e.Modulus)
	if e.Offset != 0 {
		text += fmt.Sprintf(" offset %d", e.Offset)
	}
	return text
}

func ctName(key expr.CtKey) string {
	switch key {
	case expr.CtKeySTATE:
		return "ct state"
	case expr.CtKeySTATUS:
		return "ct status"
	}
	return fmt.Sprintf("ct %d", key)
}

func fibName(e *expr.Fib) string {
	if e.FlagSADDR {
		return "fib saddr type"
	}
	return "fib daddr type"
}

func routeTypeName(value []byte) string {
	if len(value) == slotBytes && binary.NativeEndian.Uint32(value) == unix.RTN_LOCAL {
		return "local"
	}
	return integerText(value)
}

func integerText(value []byte) string {
	if len(value) != slotBytes {
		return hexText(value)
	}
	return fmt.Sprint(binary.NativeEndian.Uint32(value))
}

func hexText(value []byte) string {
	if len(value) != slotBytes {
		return fmt.Sprintf("0x%x", value)
	}
	return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(value))
}

func portText(value []byte) string {
	if len(value) != 2 {
		return hexText(value)
	}
	return fmt.Sprint(binary.BigEndian.Uint16(value))
}

func interfaceText(value []byte) string {
	name, padding := string(value), ""
	if i := strings.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	} else if len(value) < unix.IFNAMSIZ {
		padding = "*"
	}
	return strconv.Quote(name + padding)
}
