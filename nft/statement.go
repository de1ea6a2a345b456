package nft

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/notation"
)

// Statement is one step of a rule: a match, a lookup, a change of the packet
// or a verdict. It consists of expressions, which use registers from the first
// one. Functions that return statements document the nft text that they yield.
//
// A statement can have arguments that do not fit together, such as a prefix
// of the other family. Commit then returns a *CommitError.
type Statement []expr.Any

// invalidExpression stands for a statement that cannot be written.
type invalidExpression struct {
	expr.Any
	reason string
}

func invalid(format string, args ...any) Statement {
	return Statement{&invalidExpression{reason: fmt.Sprintf(format, args...)}}
}

// In yields `ip daddr . th dport @set`: the values are in the set.
func In(set *Set, exprs ...Expr) Statement {
	return lookup(exprs, &expr.Lookup{SetName: set.Name})
}

// VMap yields `ip daddr . th dport vmap @map`: it applies the verdict that
// the map has for the values. It does not match if the map has none.
func VMap(m *Set, exprs ...Expr) Statement {
	return lookup(exprs, &expr.Lookup{SetName: m.Name, DestRegister: notation.RegVerdict, IsDestRegSet: true})
}

func lookup(key []Expr, l *expr.Lookup) Statement {
	l.SourceRegister = reg1
	return append(loadConcat(key), l)
}

// RandomIsZero yields `numgen random mod 3 0`: it matches one of mod packets
// at random. The kernel refuses mod = 0.
func RandomIsZero(mod uint32) Statement {
	return Statement{Random(mod, 0).load(reg1), compare(expr.CmpOpEq, hostU32(0))}
}

// Within yields `ip daddr 10.96.0.0/16`. addr must be Saddr or Daddr of the
// family of the prefix.
func Within(addr Expr, p netip.Prefix) Statement { return matchPrefix(addr, expr.CmpOpEq, p) }

// NotWithin yields `ip saddr != 10.244.0.0/16`. addr must be Saddr or Daddr
// of the family of the prefix.
func NotWithin(addr Expr, p netip.Prefix) Statement { return matchPrefix(addr, expr.CmpOpNeq, p) }

func matchPrefix(addr Expr, op expr.CmpOp, p netip.Prefix) Statement {
	p = p.Masked()
	full := p.Addr().AsSlice()
	load, ok := addr.load(reg1).(*expr.Payload)
	if !ok || int(load.Len) != len(full) {
		return invalid("prefix %s does not match the type of %s", p, addr)
	}
	if n := p.Bits() / 8; p.Bits()%8 == 0 && n > 0 { // whole bytes need no mask
		load.Len = uint32(n)
		return Statement{load, compare(op, full[:n])}
	}
	return Statement{load, masked(reg1, net.CIDRMask(p.Bits(), len(full)*8)), compare(op, full)}
}

// InInterface yields `iifname "cbr0"`. A name that ends with * matches all
// interfaces whose names begin with the rest.
func InInterface(name string) Statement { return matchInterface(name, expr.CmpOpEq) }

// NotInInterface yields `iifname != "cbr0"`. A name that ends with * excludes
// all interfaces whose names begin with the rest.
func NotInInterface(name string) Statement { return matchInterface(name, expr.CmpOpNeq) }

func matchInterface(name string, op expr.CmpOp) Statement {
	const longest = unix.IFNAMSIZ - 1
	prefix, wildcard := strings.CutSuffix(name, "*")
	if wildcard && len(prefix) == longest { // matches one name only, and nft cannot read the * after it
		name, wildcard = prefix, false
	}
	switch {
	case prefix == "":
		return invalid("interface name %q is empty", name)
	case len(prefix) > longest:
		return invalid("interface name %q is longer than 15 bytes", name)
	case strings.ContainsAny(name, "\"\x00"):
		return invalid("interface name %q contains a quotation mark or NUL", name)
	}
	data := []byte(prefix)
	if !wildcard {
		data = make([]byte, unix.IFNAMSIZ) // compare the padding, too
		copy(data, name)
	}
	return Statement{meta(expr.MetaKeyIIFNAME), compare(op, data)}
}

// SaddrLocal yields `fib saddr type local`: the source is an address of this
// host.
func SaddrLocal() Statement { return fibLocal(&expr.Fib{FlagSADDR: true}, expr.CmpOpEq) }

// DaddrLocal yields `fib daddr type local`: the destination is an address of
// this host.
func DaddrLocal() Statement { return fibLocal(&expr.Fib{FlagDADDR: true}, expr.CmpOpEq) }

// DaddrNotLocal yields `fib daddr type != local`.
func DaddrNotLocal() Statement { return fibLocal(&expr.Fib{FlagDADDR: true}, expr.CmpOpNeq) }

func fibLocal(fib *expr.Fib, op expr.CmpOp) Statement {
	fib.Register, fib.ResultADDRTYPE = reg1, true
	return Statement{fib, compare(op, hostU32(unix.RTN_LOCAL))}
}

// ipsDstNAT is IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h.
const ipsDstNAT = 1 << 5

// CtStatusDNAT yields `ct status dnat`: the destination of the connection was
// translated.
func CtStatusDNAT() Statement {
	return matchBits(&expr.Ct{Key: expr.CtKeySTATUS, Register: reg1}, ipsDstNAT)
}

// CtDirectionReply yields `ct direction reply`: the packet answers packets of
// the client.
func CtDirectionReply() Statement {
	return Statement{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg1}, compare(expr.CmpOpEq, []byte{expr.CtDirReply})}
}

// CtStateNew yields `ct state new`: the packet begins a connection.
func CtStateNew() Statement { return ctState(expr.CtStateBitNEW) }

// CtStateFirst yields `ct state new,untracked`: the packet begins a connection,
// or is not tracked.
func CtStateFirst() Statement { return ctState(expr.CtStateBitNEW | expr.CtStateBitUNTRACKED) }

// CtStateKnown yields `ct state established,related`: connection tracking has
// seen packets of the connection in both directions.
func CtStateKnown() Statement { return ctState(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED) }

// CtStateRelated yields `ct state related`, which ICMP errors have.
func CtStateRelated() Statement { return ctState(expr.CtStateBitRELATED) }

func ctState(bits uint32) Statement {
	return matchBits(&expr.Ct{Key: expr.CtKeySTATE, Register: reg1}, bits)
}

// matchBits matches packets whose 32-bit value in host byte order has at
// least one of the bits.
func matchBits(load expr.Any, bits uint32) Statement {
	return Statement{load, masked(reg1, hostU32(bits)), compare(expr.CmpOpNeq, hostU32(0))}
}

// MatchL4Proto yields `meta l4proto tcp`.
func MatchL4Proto(proto uint8) Statement {
	return Statement{meta(expr.MetaKeyL4PROTO), compare(expr.CmpOpEq, []byte{proto})}
}

// Flags of TCP.
const (
	FlagSYN = 0x02
	FlagRST = 0x04
	FlagACK = 0x10
)

// TCPSyn yields `tcp flags syn / syn,ack`: the packet begins a TCP connection.
func TCPSyn() Statement { return tcpFlags(FlagSYN|FlagACK, expr.CmpOpEq, FlagSYN) }

// TCPHasSyn yields `tcp flags syn`: the packet begins a TCP connection or
// answers such a packet.
func TCPHasSyn() Statement { return tcpFlags(FlagSYN, expr.CmpOpNeq, 0) }

// TCPHasReset yields `tcp flags rst`: the packet refuses or ends a TCP
// connection.
func TCPHasReset() Statement { return tcpFlags(FlagRST, expr.CmpOpNeq, 0) }

// TCPRefuses yields `tcp flags rst,ack / rst,ack tcp sequence 0`: the packet
// refuses a TCP connection. A reset of an established connection has the
// sequence number that the receiver expects.
func TCPRefuses() Statement {
	const flags = FlagRST | FlagACK
	return append(tcpFlags(flags, expr.CmpOpEq, flags),
		notation.TCPSequence.Load(reg1), compare(expr.CmpOpEq, make([]byte, notation.TCPSequence.Type.Size())))
}

func tcpFlags(mask byte, op expr.CmpOp, flags byte) Statement {
	return append(MatchL4Proto(unix.IPPROTO_TCP), notation.TCPFlags.Load(reg1),
		masked(reg1, []byte{mask}), compare(op, []byte{flags}))
}

// SCTPInit yields `meta l4proto sctp @th,96,8 0x1`: the packet begins an SCTP
// association.
func SCTPInit() Statement {
	const chunkAt, initChunk = 12, 1
	load := &expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseTransportHeader, Offset: chunkAt, Len: 1}
	return append(MatchL4Proto(unix.IPPROTO_SCTP), load, compare(expr.CmpOpEq, []byte{initChunk}))
}

// MarkHas yields `meta mark & 0x00004000 != 0x00000000`: the mark of the
// packet has at least one of the bits. nft lists the highest bit as `meta
// mark != 0x00000000/1`, because it interprets the mask as a prefix.
func MarkHas(bits uint32) Statement {
	return matchBits(meta(expr.MetaKeyMARK), bits)
}

// SetMarkBits yields `meta mark set meta mark | 0x00004000`.
func SetMarkBits(bits uint32) Statement { return setMark(bits, ^bits) }

// FlipMarkBits yields `meta mark set meta mark ^ 0x00004000`.
func FlipMarkBits(bits uint32) Statement { return setMark(bits, ^uint32(0)) }

func setMark(bits, mask uint32) Statement { return setBits(expr.MetaKeyMARK, bits, mask) }

// SetPriorityBits yields `meta priority set meta priority & ff00:1 | 0:1`: it
// keeps the bits of a mask, and sets others.
func SetPriorityBits(bits, mask uint32) Statement { return setBits(expr.MetaKeyPRIORITY, bits, mask) }

func setBits(key expr.MetaKey, bits, mask uint32) Statement {
	return Statement{
		meta(key), bitwise(reg1, hostU32(mask), hostU32(bits)),
		&expr.Meta{Key: key, Register: reg1, SourceRegister: true},
	}
}

// SetPriority yields `meta priority set numgen random mod 3 offset 1`.
func SetPriority(to Expr) Statement { return setPriority(loadConcat([]Expr{to})...) }

// SetPriorityTo yields `meta priority set 0:3`.
func SetPriorityTo(class uint32) Statement {
	return setPriority(&expr.Immediate{Register: reg1, Data: hostU32(class)})
}

// SetPriorityMap yields `meta priority set ip daddr . th dport map @map`. It
// does not match if the map has no data for the values.
func SetPriorityMap(m *Set, exprs ...Expr) Statement {
	return setPriority(lookup(exprs, &expr.Lookup{SetName: m.Name, DestRegister: reg1, IsDestRegSet: true})...)
}

// setPriority sets the priority to the number that expressions load into reg1.
func setPriority(load ...expr.Any) Statement {
	return append(load, &expr.Meta{Key: expr.MetaKeyPRIORITY, Register: reg1, SourceRegister: true})
}

// HasPriority yields `meta priority != none`.
func HasPriority() Statement {
	return Statement{meta(expr.MetaKeyPRIORITY), compare(expr.CmpOpNeq, hostU32(0))}
}

// SetTrace yields `meta nftrace set 1`: from here on, the kernel reports each
// rule that the packet matches to every notify.Tracer.
func SetTrace() Statement { return trace(1) }

// UnsetTrace yields `meta nftrace set 0`.
func UnsetTrace() Statement { return trace(0) }

func trace(on byte) Statement {
	return Statement{
		&expr.Immediate{Register: reg1, Data: []byte{on}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, Register: reg1, SourceRegister: true},
	}
}

// LimitRate yields `limit rate 10/second burst 20 packets`: it matches up to
// perSecond packets each second, and the first burst packets.
func LimitRate(perSecond, burst uint32) Statement {
	return Statement{&expr.Limit{
		Type: expr.LimitTypePkts, Rate: uint64(perSecond), Unit: expr.LimitTimeSecond, Burst: burst,
	}}
}

// DNATMap yields `dnat ip to ip daddr . th dport map @map`: it translates the
// destination to the address and port that the map has for the values. It
// does not match if the map has none. nft can load the rule only if L4Proto
// is among the values or the rule matched the protocol before.
func DNATMap(f Family, m *Set, exprs ...Expr) Statement {
	l := &expr.Lookup{SetName: m.Name, DestRegister: reg1, IsDestRegSet: true}
	return append(lookup(exprs, l), dnat(f, notation.Register(f.AddrLen())))
}

// DNAT yields `dnat to 10.244.1.8:8080`. The rule must match the protocol
// before.
func DNAT(to netip.AddrPort) Statement {
	if !to.IsValid() || to.Addr().Is4In6() {
		return invalid("address %s is neither IPv4 nor IPv6", to)
	}
	const reg2 = unix.NFT_REG_2 // as nft, although the address of IPv4 is shorter than reg1
	return Statement{
		&expr.Immediate{Register: reg1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: reg2, Data: []byte{byte(to.Port() >> 8), byte(to.Port())}},
		dnat(FamilyOf(to.Addr()), reg2),
	}
}

// dnat translates to the address in reg1 and the port in another register.
func dnat(f Family, port uint32) *expr.NAT {
	return &expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(f), Specified: true,
		RegAddrMin: reg1, RegAddrMax: reg1, RegProtoMin: port, RegProtoMax: port,
	}
}

// MasqueradeFullyRandom yields `masquerade fully-random`.
func MasqueradeFullyRandom() Statement {
	return Statement{&expr.Masq{FullyRandom: true}}
}

// Reject yields `reject`: ICMP port unreachable, in tables of the family.
func Reject(f Family) Statement {
	code := ofFamily[uint8](f, notation.ICMPPortUnreachable, notation.ICMPv6PortUnreachable)
	return Statement{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}
}

// RejectTCPReset yields `reject with tcp reset`, which matches TCP first. nft
// omits that match from its listing and adds it at the beginning of the rule
// when it loads the listing. Therefore no statement should precede it.
func RejectTCPReset() Statement {
	return append(MatchL4Proto(unix.IPPROTO_TCP), &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
}

// Update yields `update @set { ip saddr timeout 3h }`: it adds the values to
// the set, or restarts their timeout. It does not match if the set is full.
//
// The kernel counts timeouts in ticks of 1 to 10 ms. A timeout of less than 1
// ms means that the row does not expire.
func Update(set *Set, timeout time.Duration, exprs ...Expr) Statement {
	timeout = timeout.Truncate(time.Millisecond)
	if timeout < 0 {
		return invalid("timeout %s is negative", timeout)
	}
	return append(loadConcat(exprs), &expr.Dynset{
		SrcRegKey: reg1, SetName: set.Name, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: timeout,
	})
}

// Counter describes a named counter, with which rules count packets (Count), or
// a counter in the kernel.
type Counter struct {
	Name string
	// Handle is the number of the counter in the kernel, which the kernel never
	// assigns twice within a table.
	Handle  uint64
	Packets uint64
}

// Count yields `counter name "drops"`: the counter counts the packet.
func Count(c *Counter) Statement {
	return Statement{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: c.Name}}
}

// Drop yields `drop`.
func Drop() Statement { return verdictStatement(VerdictDrop) }

// Return yields `return`.
func Return() Statement { return verdictStatement(VerdictReturn) }

// Goto yields `goto chain`.
func Goto(chain string) Statement { return verdictStatement(VerdictGoto(chain)) }

// Jump yields `jump chain`.
func Jump(chain string) Statement { return verdictStatement(VerdictJump(chain)) }

func verdictStatement(v Verdict) Statement {
	return Statement{&expr.Verdict{Kind: expr.VerdictKind(v.code), Chain: v.chain}}
}
