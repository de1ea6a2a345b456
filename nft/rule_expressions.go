package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// RuleExpressions is a rule as the kernel runs it: its expressions from left
// to right until one does not match.
type RuleExpressions struct {
	// Handle is the number of the rule in the kernel (see RuleID).
	Handle      uint64
	Expressions []expr.Any
	Comment     string
}

// Equal reports whether two rules have the same expressions and comment.
func (r RuleExpressions) Equal(o RuleExpressions) bool {
	return r.Comment == o.Comment && reflect.DeepEqual(r.Expressions, o.Expressions)
}

// Target returns the chain to which the rule jumps or goes, "" if there is
// none.
func (r RuleExpressions) Target() string {
	for _, e := range r.Expressions {
		if v, ok := e.(*expr.Verdict); ok && v.Chain != "" {
			return v.Chain
		}
	}
	return ""
}

// Set returns the name of the first set that the rule reads or updates, "" if
// there is none.
func (r RuleExpressions) Set() string {
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

// Constant returns the first number that is written with the function Constant,
// 0 if there is none.
func (r RuleExpressions) Constant() uint32 {
	for _, e := range r.Expressions {
		if n, ok := e.(*expr.Numgen); ok && n.Modulus == 1 {
			return n.Offset
		}
	}
	return 0
}

// DNAT returns the constant address and port to which the rule translates
// destinations. It is the zero AddrPort if the rule does not translate to a
// constant.
func (r RuleExpressions) DNAT() netip.AddrPort {
	n := len(r.Expressions)
	if n < 3 {
		return netip.AddrPort{}
	}
	addr, ok1 := r.Expressions[n-3].(*expr.Immediate)
	port, ok2 := r.Expressions[n-2].(*expr.Immediate)
	nat, ok3 := r.Expressions[n-1].(*expr.NAT)
	if !ok1 || !ok2 || !ok3 || nat.Type != expr.NATTypeDestNAT || len(port.Data) != 2 ||
		!isOnly(addr.Register, nat.RegAddrMin, nat.RegAddrMax) || !isOnly(port.Register, nat.RegProtoMin, nat.RegProtoMax) {
		return netip.AddrPort{}
	}
	ip, _ := netip.AddrFromSlice(addr.Data)
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port.Data))
}

// isOnly reports whether a range contains the value of one register. last is 0
// if it is omitted.
func isOnly(register, first, last uint32) bool {
	return register == first && (last == first || last == 0)
}

// Expressions returns the rule as Conn.RuleExpressions reads it after AddRules.
// The error is the reason why it cannot be written.
func (r Rule) Expressions() (RuleExpressions, error) {
	out := RuleExpressions{Comment: storedComment(r.Comment)}
	for _, s := range r.Statements {
		if s.invalid != "" {
			return RuleExpressions{}, fmt.Errorf("rule %s: %s", r, s.invalid)
		}
		out.Expressions = append(out.Expressions, s.exprs...)
	}
	return out, nil
}

// RuleExpressions reads the rules of a chain with all their expressions. It
// returns none if the chain does not exist, and an error if a rule has an
// expression that it cannot decode. See Chains for ErrGeneration.
func (c *Conn) RuleExpressions(t *Table, chain string) ([]RuleExpressions, error) {
	return c.readExpressions(t, chain, decodeExpression)
}

// decodeFunc decodes an expression of a rule.
type decodeFunc func(f Family, attributes []byte) (expr.Any, error)

func (c *Conn) readExpressions(t *Table, chain string, decode decodeFunc) ([]RuleExpressions, error) {
	var failure error
	number := 0
	rules, err := dump(c, kindRule, t, chain, func(msg []byte) (rule RuleExpressions, ok bool) {
		if cString(attr(msg, unix.NFTA_RULE_CHAIN)) != chain {
			return rule, false
		}
		number++
		rule, err := decodeRule(t.Family, msg, decode)
		if err != nil && failure == nil {
			failure = fmt.Errorf("rule %d of chain %s of %s: %w", number, chain, t, err)
		}
		return rule, true
	})
	if err == nil {
		err = failure
	}
	return rules, err
}

func decodeRule(f Family, msg []byte, decode decodeFunc) (rule RuleExpressions, err error) {
	rule.Handle = be64(attr(msg, unix.NFTA_RULE_HANDLE))
	rule.Comment = parseComment(attr(msg, unix.NFTA_RULE_USERDATA))
	eachAttr(attr(msg, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, e []byte) {
		decoded, failure := decode(f, e)
		if failure != nil && err == nil {
			err = failure
		}
		rule.Expressions = append(rule.Expressions, decoded)
	})
	return rule, err
}

// nftaBitwiseOp is the attribute with the operation of a bitwise expression
// (Linux 5.6). 0 is the operation with a mask.
const nftaBitwiseOp = 6

// decodeExpression decodes an expression of the kinds that this package
// writes, and counters.
func decodeExpression(f Family, attributes []byte) (expr.Any, error) {
	name, data := cString(attr(attributes, unix.NFTA_EXPR_NAME)), attr(attributes, unix.NFTA_EXPR_DATA)
	e := newExpression(name, data)
	if e == nil {
		return nil, fmt.Errorf("expression %q is unknown", name)
	}
	if name == "bitwise" && be32(attr(data, nftaBitwiseOp)) != 0 {
		return nil, fmt.Errorf("expression %q with operation %d is unknown", name, be32(attr(data, nftaBitwiseOp)))
	}
	if err := expr.Unmarshal(byte(f), data, e); err != nil {
		return nil, fmt.Errorf("decode expression %q: %w", name, err)
	}
	return e, nil
}

// newExpression returns an empty expression, nil if the kind is unknown.
func newExpression(name string, data []byte) expr.Any {
	switch name {
	case "payload":
		return &expr.Payload{}
	case "meta":
		return &expr.Meta{}
	case "ct":
		return &expr.Ct{}
	case "fib":
		return &expr.Fib{}
	case "numgen":
		return &expr.Numgen{}
	case "bitwise":
		return &expr.Bitwise{}
	case "cmp":
		return &expr.Cmp{}
	case "lookup":
		return &expr.Lookup{}
	case "dynset":
		return &expr.Dynset{}
	case "immediate":
		if attr(attr(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT) != nil {
			return &expr.Verdict{}
		}
		return &expr.Immediate{}
	case "nat":
		return &expr.NAT{}
	case "masq":
		return &expr.Masq{}
	case "reject":
		return &expr.Reject{}
	case "counter":
		return &expr.Counter{}
	case "objref":
		return &expr.Objref{}
	}
	return nil
}
