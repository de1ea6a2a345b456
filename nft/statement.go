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
type Statement struct {
	text  string
	exprs []expr.Any
}

// String returns the statement in nft syntax.
func (s Statement) String() string { return s.text }

// Raw makes a statement that this package has no function for of its nft text and its expressions.
func Raw(text string, exprs ...expr.Any) Statement { return Statement{text, exprs} }

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
	return Statement{text, append(loadConcat(exprs), l)}
}

// Within yields `ip daddr 10.96.0.0/16`.
func Within(addr Expr, p netip.Prefix) Statement { return matchPrefix(addr, expr.CmpOpEq, p) }

// NotWithin yields `ip saddr != 10.244.0.0/16`.
func NotWithin(addr Expr, p netip.Prefix) Statement { return matchPrefix(addr, expr.CmpOpNeq, p) }

func matchPrefix(addr Expr, op expr.CmpOp, p netip.Prefix) Statement {
	p = p.Masked()
	full := p.Addr().AsSlice()
	text := addr.text + " "
	if op == expr.CmpOpNeq {
		text += "!= "
	}
	if p.IsSingleIP() {
		text += p.Addr().String()
	} else {
		text += p.String()
	}
	load := *addr.load(reg1).(*expr.Payload)
	if n := p.Bits() / 8; p.Bits()%8 == 0 && n > 0 { // whole bytes, which need no mask
		load.Len = uint32(n)
		return Statement{text, []expr.Any{&load, &expr.Cmp{Op: op, Register: reg1, Data: full[:n]}}}
	}
	mask := make([]byte, len(full))
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return Statement{text, []expr.Any{
		&load,
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: uint32(len(full)), Mask: mask, Xor: make([]byte, len(full))},
		&expr.Cmp{Op: op, Register: reg1, Data: full},
	}}
}

// InInterface yields `iifname "cbr0"`, and with a trailing * in name all interfaces that begin so.
func InInterface(name string) Statement { return matchInterface(name, expr.CmpOpEq) }

// NotInInterface yields `iifname != "cbr0"`, and with a trailing * in name all interfaces that do not begin so.
func NotInInterface(name string) Statement { return matchInterface(name, expr.CmpOpNeq) }

func matchInterface(name string, op expr.CmpOp) Statement {
	text := "iifname "
	if op == expr.CmpOpNeq {
		text += "!= "
	}
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		data = []byte(prefix)
	}
	return Statement{text + quote(name), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg1},
		&expr.Cmp{Op: op, Register: reg1, Data: data},
	}}
}

// SaddrLocal yields `fib saddr type local`: the source is an address of this host.
func SaddrLocal() Statement { return fibLocal("saddr", &expr.Fib{FlagSADDR: true}) }

// DaddrLocal yields `fib daddr type local`: the destination is an address of this host.
func DaddrLocal() Statement { return fibLocal("daddr", &expr.Fib{FlagDADDR: true}) }

func fibLocal(name string, fib *expr.Fib) Statement {
	fib.Register, fib.ResultADDRTYPE = reg1, true
	return Statement{"fib " + name + " type local", []expr.Any{
		fib, &expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: hostU32(unix.RTN_LOCAL)},
	}}
}

// CtStateNew yields `ct state new`: the packet begins a connection.
func CtStateNew() Statement {
	return Statement{"ct state new", matchBits(&expr.Ct{Key: expr.CtKeySTATE, Register: reg1}, expr.CtStateBitNEW)}
}

// ipsDstNAT is IPS_DST_NAT of the kernel's nf_conntrack_common.h.
const ipsDstNAT = 1 << 5

// CtStatusDNAT yields `ct status dnat`: the destination of the connection was translated.
func CtStatusDNAT() Statement {
	return Statement{"ct status dnat", matchBits(&expr.Ct{Key: expr.CtKeySTATUS, Register: reg1}, ipsDstNAT)}
}

// MatchL4Proto yields `meta l4proto tcp`.
func MatchL4Proto(proto uint8) Statement {
	return Statement{"meta l4proto " + protocolName(proto), matchL4Proto(proto)}
}

// MarkHas yields `meta mark & 0x00004000 != 0x00000000`.
func MarkHas(bits uint32) Statement {
	return Statement{fmt.Sprintf("meta mark & %#08x != 0x00000000", mark(bits)),
		matchBits(&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1}, bits)}
}

// SetMarkBits yields `meta mark set meta mark | 0x00004000`.
func SetMarkBits(bits uint32) Statement { return setMark("|", bits, ^bits) }

// FlipMarkBits yields `meta mark set meta mark ^ 0x00004000`.
func FlipMarkBits(bits uint32) Statement { return setMark("^", bits, ^uint32(0)) }

func setMark(op string, bits, mask uint32) Statement {
	return Statement{fmt.Sprintf("meta mark set meta mark %s %#08x", op, mark(bits)), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1},
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: hostU32(mask), Xor: hostU32(bits)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg1, SourceRegister: true},
	}}
}

// mark prints as the 0x and 8 digits that nft gives marks.
type mark uint32

func (m mark) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "0x%08x", uint32(m)) }

// DNATMap yields `dnat ip to ip daddr . th dport map @map`: the destination becomes the address and port that the map
// has for the values; go on if it has none.
func DNATMap(f Family, m *Set, exprs ...Expr) Statement {
	text := fmt.Sprintf("dnat %s to %s map @%s", f, concatText(exprs), m.Name)
	l := &expr.Lookup{SourceRegister: reg1, SetName: m.Name, DestRegister: reg1, IsDestRegSet: true}
	return Statement{text, append(loadConcat(exprs), l, dnat(f, reg1, reg32+uint32(f.AddrLen()/4)))}
}

// DNAT yields `dnat to 10.244.1.8:8080`. The rule must have matched the protocol before.
func DNAT(to netip.AddrPort) Statement {
	f := FamilyOf(to.Addr())
	portReg := uint32(reg32 + f.AddrLen()/4)
	return Statement{"dnat to " + to.String(), []expr.Any{
		&expr.Immediate{Register: reg1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: portReg, Data: []byte{byte(to.Port() >> 8), byte(to.Port())}},
		dnat(f, reg1, portReg),
	}}
}

func dnat(f Family, addrReg, portReg uint32) *expr.NAT {
	return &expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(f), Specified: true,
		RegAddrMin: addrReg, RegAddrMax: addrReg, RegProtoMin: portReg, RegProtoMax: portReg,
	}
}

// MasqueradeFullyRandom yields `masquerade fully-random`.
func MasqueradeFullyRandom() Statement {
	return Statement{"masquerade fully-random", []expr.Any{&expr.Masq{FullyRandom: true}}}
}

// Reject yields `reject`: ICMP port unreachable.
func Reject(f Family) Statement {
	code := uint8(unix.NFT_REJECT_ICMPX_PORT_UNREACH)
	switch f {
	case IPv4:
		code = 3 // ICMP_PORT_UNREACH
	case IPv6:
		code = 4 // ICMPV6_PORT_UNREACH
	}
	return Statement{"reject", []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}}
}

// RejectTCPReset yields `meta l4proto tcp reject with tcp reset`.
func RejectTCPReset() Statement {
	return Statement{"meta l4proto tcp reject with tcp reset",
		append(matchL4Proto(unix.IPPROTO_TCP), &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})}
}

// Update yields `update @set { ip saddr timeout 3h }`: add the values to the set, or start their timeout anew.
// The rule goes on either way, unless the set is full: then it ends here and the next rule of the chain follows.
func Update(set *Set, timeout time.Duration, exprs ...Expr) Statement {
	text := fmt.Sprintf("update @%s { %s timeout %s }", set.Name, concatText(exprs), durationText(timeout))
	return Statement{text, append(loadConcat(exprs), &expr.Dynset{
		SrcRegKey: reg1, SetName: set.Name, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: timeout,
	})}
}

// Do yields the verdict: `drop`, `goto chain`, ...
func Do(v Verdict) Statement {
	return Statement{v.String(), []expr.Any{&expr.Verdict{Kind: expr.VerdictKind(v.code), Chain: v.chain}}}
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
