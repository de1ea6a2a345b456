package nft

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/notation"
)

// Rule is a rule of a chain, written or found in the kernel. The kernel runs
// its expressions from left to right until one does not match.
type Rule struct {
	// Handle is the number of the rule in the kernel (see RuleID), 0 for a rule
	// that was not found there.
	Handle      uint64
	Expressions []expr.Any
	Comment     string
}

// NewRule returns a rule with these statements.
func NewRule(statements ...Statement) Rule { return Rule{Expressions: slices.Concat(statements...)} }

// WithComment returns the rule with a comment, which is cut to 127 bytes.
func (r Rule) WithComment(comment string) Rule {
	r.Comment = notation.Comment(comment)
	return r
}

// Text returns the rule as `nft --stateless list` prints it in a table of a
// family. Parts that the package does not know are written as `…`.
func (r Rule) Text(f Family) string { return notation.Rule(f, r.Expressions, r.Comment) }

// Extension is an expression that runs a match or a target of iptables. It
// cannot be written.
type Extension struct {
	expr.Any
	Target   bool
	Name     string // such as conntrack or REJECT
	Revision uint32
	Data     []byte // the structure of the extension
}

// String returns the expression as Rule.Text writes it.
func (e *Extension) String() string {
	switch {
	case e.Target && e.Name == "REJECT":
		return "reject"
	case e.Target:
		return "xt target " + notation.Quote(e.Name)
	case e.Name == "comment":
		return "comment " + notation.Quote(unix.ByteSliceToString(e.Data))
	}
	return "xt match " + notation.Quote(e.Name)
}

// UnknownExpression is an expression that the package does not decode. It
// cannot be written.
type UnknownExpression struct {
	expr.Any
	Name string // such as log
	Data []byte // the attributes of the expression
}

// String returns the expression as Rule.Text writes it.
func (e *UnknownExpression) String() string { return e.Name + " …" }

// Equal reports whether two rules have the same expressions and comment. The
// functions that return statements use the form in which the kernel returns
// expressions, so a rule that was written equals the one that is found.
func (r Rule) Equal(o Rule) bool {
	return r.Comment == o.Comment && slices.EqualFunc(r.Expressions, o.Expressions, equalExpressions)
}

// equalExpressions is reflect.DeepEqual, but ten times as fast for the
// expressions of which large chains consist.
func equalExpressions(a, b expr.Any) bool {
	switch a := a.(type) {
	case *expr.Immediate:
		b, ok := b.(*expr.Immediate)
		return ok && a.Register == b.Register && bytes.Equal(a.Data, b.Data)
	case *expr.Cmp:
		b, ok := b.(*expr.Cmp)
		return ok && a.Register == b.Register && a.Op == b.Op && bytes.Equal(a.Data, b.Data)
	case *expr.Payload:
		return equalFields(a, b)
	case *expr.Meta:
		return equalFields(a, b)
	case *expr.Numgen:
		return equalFields(a, b)
	case *expr.Hash:
		return equalFields(a, b)
	case *expr.Lookup:
		return equalFields(a, b)
	case *expr.NAT:
		return equalFields(a, b)
	}
	return reflect.DeepEqual(a, b)
}

func equalFields[T comparable](a *T, b any) bool {
	other, ok := b.(*T)
	return ok && *a == *other
}

// Target returns the chain to which the rule jumps or goes, "" if there is
// none.
func (r Rule) Target() string {
	for _, e := range r.Expressions {
		if v, ok := e.(*expr.Verdict); ok && v.Chain != "" {
			return v.Chain
		}
	}
	return ""
}

// Set returns the name of the first set that the rule reads or updates, "" if
// there is none.
func (r Rule) Set() string {
	for _, e := range r.Expressions {
		switch e := e.(type) {
		case *expr.Lookup:
			return e.SetName
		case *expr.Dynset:
			return e.SetName
		}
	}
	return ""
}

// Sets reports whether the rule has SetCtTimeout with an object.
func (r Rule) Sets(c *CtTimeout) bool {
	set := SetCtTimeout(c)[0]
	return slices.ContainsFunc(r.Expressions, func(e expr.Any) bool { return equalExpressions(e, set) })
}

// Priorities returns the numbers to which the rule sets the priority, in their
// order.
func (r Rule) Priorities() (priorities []uint32) {
	for i, e := range r.Expressions[:max(0, len(r.Expressions)-1)] {
		set, ok := r.Expressions[i+1].(*expr.Meta)
		if n, isConstant := e.(*expr.Immediate); ok && isConstant && set.SourceRegister &&
			set.Key == expr.MetaKeyPRIORITY && len(n.Data) == 4 {
			priorities = append(priorities, binary.NativeEndian.Uint32(n.Data))
		}
	}
	return priorities
}

// DNAT returns the constant address and port to which the rule translates
// destinations. It is the zero AddrPort if the rule does not translate to a
// constant.
func (r Rule) DNAT() (to netip.AddrPort) {
	last := r.Expressions[max(0, len(r.Expressions)-3):]
	for _, e := range last {
		if e, ok := e.(*expr.Immediate); ok && len(e.Data) == 2 {
			to = netip.AddrPortFrom(to.Addr(), binary.BigEndian.Uint16(e.Data))
		} else if ok {
			addr, _ := netip.AddrFromSlice(e.Data)
			to = netip.AddrPortFrom(addr, to.Port())
		}
	}
	if !slices.EqualFunc(last, DNAT(to), equalExpressions) {
		return netip.AddrPort{}
	}
	return to
}

// Prefix returns the prefix of a rule that begins with Within(addr, prefix).
func (r Rule) Prefix(addr Expr) (p netip.Prefix, ok bool) {
	data, mask := r.firstComparison()
	full := make([]byte, addr.typ.Size())
	ones := copy(full, data) * 8
	if mask != nil {
		ones, _ = net.IPMask(mask).Size()
	}
	first, _ := netip.AddrFromSlice(full)
	p = netip.PrefixFrom(first, ones)
	return p, p.IsValid() && r.beginsWith(Within(addr, p))
}

// Interface returns the name of a rule that begins with InInterface(name).
func (r Rule) Interface() (name string, ok bool) {
	data, _ := r.firstComparison()
	name, _, padded := strings.Cut(string(data), "\x00")
	if !padded {
		name += "*"
	}
	return name, len(data) > 0 && r.beginsWith(InInterface(name))
}

// firstComparison returns the first constant of a rule, and the mask of the
// value that it is compared with.
func (r Rule) firstComparison() (data, mask []byte) {
	for _, e := range r.Expressions {
		switch e := e.(type) {
		case *expr.Bitwise:
			mask = e.Mask
		case *expr.Cmp:
			return e.Data, mask
		}
	}
	return nil, nil
}

func (r Rule) beginsWith(s Statement) bool {
	return len(r.Expressions) >= len(s) && slices.EqualFunc(r.Expressions[:len(s)], s, equalExpressions)
}

// Verdict decides what happens to a packet: VerdictAccept, VerdictDrop,
// VerdictReturn, VerdictGoto(chain) or VerdictJump(chain). The zero Verdict
// is VerdictDrop.
type Verdict struct {
	code  int32
	chain string
}

// Verdicts without a chain.
var (
	VerdictDrop   = Verdict{code: 0}
	VerdictAccept = Verdict{code: 1}
	VerdictReturn = Verdict{code: unix.NFT_RETURN}
)

// Verdicts of a TraceEvent, or of rules of other programs.
var (
	VerdictContinue = Verdict{code: unix.NFT_CONTINUE} // to the next rule
	VerdictBreak    = Verdict{code: unix.NFT_BREAK}    // the rule does not match
	VerdictStolen   = Verdict{code: 2}                 // another part of the kernel has the packet
	VerdictQueue    = Verdict{code: 3}                 // a program decides
)

// VerdictGoto yields `goto chain`.
func VerdictGoto(chain string) Verdict { return Verdict{unix.NFT_GOTO, chain} }

// VerdictJump yields `jump chain`.
func VerdictJump(chain string) Verdict { return Verdict{unix.NFT_JUMP, chain} }

// Chain returns the chain of a goto or jump, or "".
func (v Verdict) Chain() string { return v.chain }

// VerdictOf returns the verdict of an expression.
func VerdictOf(e *expr.Verdict) Verdict { return newVerdict(int32(e.Kind), e.Chain) }

func newVerdict(code int32, chain string) Verdict { return Verdict{notation.VerdictCode(code), chain} }

// String returns the verdict in nft syntax.
func (v Verdict) String() string { return notation.Verdict(v.code, v.chain) }

// Queues are the queues to which a rule sends packets, for a program that
// decides about them (nfnetlink_queue).
type Queues struct {
	// First is the number of the first queue, Total how many there are.
	First, Total uint16
	// Bypass reports whether the packet passes if no program listens to its
	// queue. Otherwise the kernel drops it.
	Bypass bool
}

// Queues returns the queues to which the rule sends packets. ok is false if
// there are none, or if their numbers are not known.
func (r Rule) Queues() (q Queues, ok bool) {
	for _, e := range r.Expressions {
		switch e := e.(type) {
		case *expr.Queue:
			q = Queues{e.Num, e.Total, e.Flag&expr.QueueFlagBypass != 0}
		case *Extension:
			q = e.queues()
		}
	}
	return q, q.Total > 0
}

// queues returns the queues of a target NFQUEUE. Its data is a struct
// xt_NFQ_info_v3; that of earlier revisions is shorter.
func (e *Extension) queues() (q Queues) {
	const bypass = 1
	if !e.Target || e.Name != "NFQUEUE" || len(e.Data) < 2 {
		return Queues{}
	}
	fields := binary.NativeEndian
	q = Queues{First: fields.Uint16(e.Data), Total: 1}
	if e.Revision >= 1 && len(e.Data) >= 4 {
		q.Total = fields.Uint16(e.Data[2:])
	}
	q.Bypass = e.Revision >= 2 && len(e.Data) >= 6 && fields.Uint16(e.Data[4:])&bypass != 0
	return q
}
