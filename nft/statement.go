package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Statement is one step of a rule: a match, a lookup, an action or a verdict. The functions that make statements show
// above them the nft text that they yield, which is also what String returns.
//
// A statement made of values that do not fit together, such as a prefix of the other family, is refused by Conn.Commit.
type Statement struct {
	text    string
	exprs   []expr.Any
	invalid string // why it cannot be written, "" if it can
}

// String returns the statement in nft syntax.
func (s Statement) String() string { return s.text }

// Raw makes a statement that this package has no function for of its nft text and its expressions.
func Raw(text string, exprs ...expr.Any) Statement { return statement(text, exprs...) }

func statement(text string, exprs ...expr.Any) Statement { return Statement{text: text, exprs: exprs} }

func concatText(exprs []Expr) string {
	parts := make([]string, len(exprs))
	for i, e := range exprs {
		parts[i] = e.text
	}
	return strings.Join(parts, " . ")
}

// In yields `ip daddr . th dport @set`: go on if the values are in the set.
func In(set *Set, exprs ...Expr) Statement {
	return lookup(concatText(exprs)+" @"+set.Name, &expr.Lookup{SourceRegister: reg1, SetName: set.Name}, exprs)
}

// NotIn yields `ip daddr . th dport != @set`: go on if the values are not in the set.
func NotIn(set *Set, exprs ...Expr) Statement {
	return lookup(concatText(exprs)+" != @"+set.Name, &expr.Lookup{SourceRegister: reg1, SetName: set.Name, Invert: true}, exprs)
}

// VMap yields `ip daddr . th dport vmap @map`: the verdict that the map has for the values; go on if it has none.
func VMap(m *Set, exprs ...Expr) Statement {
	l := &expr.Lookup{SourceRegister: reg1, SetName: m.Name, DestRegister: regVerdict, IsDestRegSet: true}
	return lookup(concatText(exprs)+" vmap @"+m.Name, l, exprs)
}

func lookup(text string, l *expr.Lookup, exprs []Expr) Statement {
	return statement(text, append(loadConcat(exprs), l)...)
}

// RandomIsZero yields `numgen random mod 3 0`: one packet of mod matches, at
// random. The kernel refuses mod = 0.
func RandomIsZero(mod uint32) Statement {
	e := Random(mod, 0)
	return statement(e.text+" 0", e.load(reg1), &expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: hostU32(0)})
}

// Within yields `ip daddr 10.96.0.0/16`. addr is Saddr or Daddr of the prefix's family.
func Within(addr Expr, p netip.Prefix) Statement { return matchPrefix(addr, expr.CmpOpEq, p) }

// NotWithin yields `ip saddr != 10.244.0.0/16`. addr is Saddr or Daddr of the prefix's family.
func NotWithin(addr Expr, p netip.Prefix) Statement { return matchPrefix(addr, expr.CmpOpNeq, p) }

func matchPrefix(addr Expr, op expr.CmpOp, p netip.Prefix) Statement {
	p = p.Masked()
	text := addr.text + " "
	if op == expr.CmpOpNeq {
		text += "!= "
	}
	if p.IsSingleIP() {
		text += p.Addr().String()
	} else {
		text += p.String()
	}
	full := p.Addr().AsSlice()
	load, ok := addr.load(reg1).(*expr.Payload)
	if !ok || int(load.Len) != len(full) {
		return Statement{text: text, invalid: "the prefix is no prefix of such an address"}
	}
	if n := p.Bits() / 8; p.Bits()%8 == 0 && n > 0 { // whole bytes, which need no mask
		load.Len = uint32(n)
		return statement(text, load, &expr.Cmp{Op: op, Register: reg1, Data: full[:n]})
	}
	mask := make([]byte, len(full))
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return statement(text,
		load,
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: uint32(len(full)), Mask: mask, Xor: make([]byte, len(full))},
		&expr.Cmp{Op: op, Register: reg1, Data: full})
}

// InInterface yields `iifname "cbr0"`, and with a trailing * in name all interfaces that begin so.
func InInterface(name string) Statement { return matchInterface(name, expr.CmpOpEq) }

// NotInInterface yields `iifname != "cbr0"`, and with a trailing * in name all interfaces that do not begin so.
func NotInInterface(name string) Statement { return matchInterface(name, expr.CmpOpNeq) }

func matchInterface(name string, op expr.CmpOp) Statement {
	const longest = unix.IFNAMSIZ - 1
	prefix, wildcard := strings.CutSuffix(name, "*")
	if wildcard && len(prefix) == longest { // no other name begins so, and nft reads no * behind it
		name, wildcard = prefix, false
	}
	text := "iifname "
	if op == expr.CmpOpNeq {
		text += "!= "
	}
	text += quote(name)
	switch {
	case prefix == "":
		return Statement{text: text, invalid: "the name of the interface is empty"}
	case len(prefix) > longest:
		return Statement{text: text, invalid: "the name of the interface is longer than 15 bytes"}
	case strings.ContainsAny(name, "\"\x00"):
		return Statement{text: text, invalid: "nft cannot read the name of the interface"}
	}
	data := []byte(prefix)
	if !wildcard {
		data = make([]byte, unix.IFNAMSIZ) // the name ends where the zeros begin
		copy(data, name)
	}
	return statement(text,
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg1},
		&expr.Cmp{Op: op, Register: reg1, Data: data})
}

// SaddrLocal yields `fib saddr type local`: the source is an address of this host.
func SaddrLocal() Statement { return fibLocal("saddr", &expr.Fib{FlagSADDR: true}) }

// DaddrLocal yields `fib daddr type local`: the destination is an address of this host.
func DaddrLocal() Statement { return fibLocal("daddr", &expr.Fib{FlagDADDR: true}) }

func fibLocal(name string, fib *expr.Fib) Statement {
	fib.Register, fib.ResultADDRTYPE = reg1, true
	return statement("fib "+name+" type local",
		fib, &expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: hostU32(unix.RTN_LOCAL)})
}

// CtStateNew yields `ct state new`: the packet begins a connection.
func CtStateNew() Statement {
	return statement("ct state new", matchBits(&expr.Ct{Key: expr.CtKeySTATE, Register: reg1}, expr.CtStateBitNEW)...)
}

// CtStateNotNew yields `ct state != new`: the packet belongs to a connection that others began, or to none.
func CtStateNotNew() Statement {
	return statement("ct state != new", &expr.Ct{Key: expr.CtKeySTATE, Register: reg1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: hostU32(expr.CtStateBitNEW)})
}

// CtStatusDNAT yields `ct status dnat`: the destination of the connection was translated.
func CtStatusDNAT() Statement {
	return statement("ct status dnat", matchBits(&expr.Ct{Key: expr.CtKeySTATUS, Register: reg1}, ipsDstNAT)...)
}

// MatchL4Proto yields `meta l4proto tcp`.
func MatchL4Proto(proto uint8) Statement {
	return statement("meta l4proto "+protocolName(proto), matchL4Proto(proto)...)
}

// MarkHas yields `meta mark & 0x00004000 != 0x00000000`: the packet's mark has one of the bits. nft lists the highest bit, which it
// takes for a prefix, as `meta mark != 0x00000000/1`.
func MarkHas(bits uint32) Statement {
	return statement(fmt.Sprintf("meta mark & 0x%08x != 0x00000000", bits),
		matchBits(&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1}, bits)...)
}

// SetMarkBits yields `meta mark set meta mark | 0x00004000`: the packet's mark gets the bits.
func SetMarkBits(bits uint32) Statement { return setMark("|", bits, ^bits) }

// FlipMarkBits yields `meta mark set meta mark ^ 0x00004000`: the bits of the packet's mark turn around.
func FlipMarkBits(bits uint32) Statement { return setMark("^", bits, ^uint32(0)) }

func setMark(op string, bits, mask uint32) Statement {
	return statement(fmt.Sprintf("meta mark set meta mark %s 0x%08x", op, bits),
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1},
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: hostU32(mask), Xor: hostU32(bits)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1, SourceRegister: true})
}

// DNATMap yields `dnat ip to ip daddr . th dport map @map`: the destination becomes the address and port that the map
// has for the values; go on if it has none. nft can load it where L4Proto is among the values, or the rule
// matched the protocol before.
func DNATMap(f Family, m *Set, exprs ...Expr) Statement {
	text := fmt.Sprintf("dnat %s to %s map @%s", f, concatText(exprs), m.Name)
	l := &expr.Lookup{SourceRegister: reg1, SetName: m.Name, DestRegister: reg1, IsDestRegSet: true}
	return statement(text, append(loadConcat(exprs), l, dnat(f))...)
}

// DNAT yields `dnat to 10.244.1.8:8080`. The rule must have matched the protocol before.
func DNAT(to netip.AddrPort) Statement {
	text := "dnat to " + to.String()
	if !to.IsValid() || to.Addr().Is4In6() {
		return Statement{text: text, invalid: "the address is of neither family"}
	}
	f := FamilyOf(to.Addr())
	return statement(text,
		&expr.Immediate{Register: reg1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: register(f.AddrLen()), Data: []byte{byte(to.Port() >> 8), byte(to.Port())}},
		dnat(f))
}

// dnat translates to the address in the first registers and the port in the one behind it.
func dnat(f Family) *expr.NAT {
	port := register(f.AddrLen())
	return &expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(f), Specified: true,
		RegAddrMin: reg1, RegAddrMax: reg1, RegProtoMin: port, RegProtoMax: port,
	}
}

// MasqueradeFullyRandom yields `masquerade fully-random`.
func MasqueradeFullyRandom() Statement {
	return statement("masquerade fully-random", &expr.Masq{FullyRandom: true})
}

// Codes of ICMP and ICMPv6 errors (linux/icmp.h, linux/icmpv6.h).
const (
	icmpPortUnreachable   = 3
	icmpv6PortUnreachable = 4
)

// Reject yields `reject`: ICMP port unreachable, in tables of the family.
func Reject(f Family) Statement {
	code := uint8(icmpPortUnreachable)
	if f == IPv6 {
		code = icmpv6PortUnreachable
	}
	return statement("reject", &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code})
}

// RejectTCPReset yields `meta l4proto tcp reject with tcp reset`, which nft lists without the match of the protocol. When
// it loads such a listing it matches the protocol at the beginning of the rule, so there should be nothing else before.
func RejectTCPReset() Statement {
	return statement("meta l4proto tcp reject with tcp reset",
		append(matchL4Proto(unix.IPPROTO_TCP), &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})...)
}

// Update yields `update @set { ip saddr timeout 3h }`: add the values to the set, or start their timeout anew. The kernel counts
// timeouts in ticks of its clock, of 1 to 10 ms; with less than 1 ms there is none. The rule goes on either way, unless the set is full:
// then it ends here and the next rule of the chain follows.
func Update(set *Set, timeout time.Duration, exprs ...Expr) Statement {
	timeout = timeout.Truncate(time.Millisecond)
	values := concatText(exprs)
	if timeout != 0 {
		values += " timeout " + durationText(timeout)
	}
	text := fmt.Sprintf("update @%s { %s }", set.Name, values)
	if timeout < 0 {
		return Statement{text: text, invalid: "the timeout is negative"}
	}
	return statement(text, append(loadConcat(exprs), &expr.Dynset{
		SrcRegKey: reg1, SetName: set.Name, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: timeout,
	})...)
}

// Do yields the verdict: `drop`, `goto chain`, ...
func Do(v Verdict) Statement {
	return statement(v.String(), &expr.Verdict{Kind: expr.VerdictKind(v.code), Chain: v.chain})
}

// Drop yields `drop`.
func Drop() Statement { return Do(VerdictDrop) }

// Goto yields `goto chain`.
func Goto(chain string) Statement { return Do(VerdictGoto(chain)) }

// Jump yields `jump chain`.
func Jump(chain string) Statement { return Do(VerdictJump(chain)) }

// durationText returns a duration as nft writes it: 1d2h3m4s5ms.
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
