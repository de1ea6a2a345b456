package nft

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/notation"
)

// Rules reads the rules of a chain, which any program can have written. It
// returns none if the chain does not exist. Expressions that the package does
// not decode are Extensions and UnknownExpressions. See Chains for
// ErrGeneration.
func (c *Conn) Rules(t *Table, chain string) ([]Rule, error) {
	return dump(c, kindRule, t, chain, func(msg []byte) (Rule, bool) {
		if cString(attr(msg, unix.NFTA_RULE_CHAIN)) != chain {
			return Rule{}, false
		}
		return parseRule(t.Family, msg), true
	})
}

func parseRule(f Family, msg []byte) Rule {
	rule := Rule{
		Handle:  be64(attr(msg, unix.NFTA_RULE_HANDLE)),
		Comment: notation.ParseComment(attr(msg, unix.NFTA_RULE_USERDATA)),
	}
	eachAttr(attr(msg, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, e []byte) {
		rule.Expressions = append(rule.Expressions, parseExpression(f, e))
	})
	return rule
}

func parseExpression(f Family, attributes []byte) expr.Any {
	name, data := cString(attr(attributes, unix.NFTA_EXPR_NAME)), attr(attributes, unix.NFTA_EXPR_DATA)
	switch name {
	case "match", "target": // NFTA_TARGET_* have the numbers of NFTA_MATCH_*
		return &Extension{
			Target: name == "target", Name: cString(attr(data, unix.NFTA_MATCH_NAME)),
			Revision: be32(attr(data, unix.NFTA_MATCH_REV)), Data: slices.Clone(attr(data, unix.NFTA_MATCH_INFO)),
		}
	}
	if e := newExpression(name, data); e != nil && expr.Unmarshal(byte(f), data, e) == nil {
		return e
	}
	return &UnknownExpression{Name: name, Data: slices.Clone(data)}
}

// nftaBitwiseOp is the attribute with the operation of a bitwise expression
// (Linux 5.6). 0 is the operation with a mask.
const nftaBitwiseOp = 6

// newExpression returns an empty expression, nil if the kind is unknown.
func newExpression(name string, data []byte) expr.Any {
	switch {
	case name == "bitwise" && be32(attr(data, nftaBitwiseOp)) != 0:
		return nil
	case name == "immediate" && attr(attr(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT) != nil:
		return &expr.Verdict{}
	case newExpressions[name] == nil:
		return nil
	}
	return newExpressions[name]()
}

// newExpressions has a function for each known kind of expression that returns
// an empty one.
var newExpressions = map[string]func() expr.Any{
	"payload":   func() expr.Any { return &expr.Payload{} },
	"meta":      func() expr.Any { return &expr.Meta{} },
	"ct":        func() expr.Any { return &expr.Ct{} },
	"fib":       func() expr.Any { return &expr.Fib{} },
	"numgen":    func() expr.Any { return &expr.Numgen{} },
	"hash":      func() expr.Any { return &expr.Hash{} },
	"bitwise":   func() expr.Any { return &expr.Bitwise{} },
	"cmp":       func() expr.Any { return &expr.Cmp{} },
	"range":     func() expr.Any { return &expr.Range{} },
	"lookup":    func() expr.Any { return &expr.Lookup{} },
	"dynset":    func() expr.Any { return &expr.Dynset{} },
	"immediate": func() expr.Any { return &expr.Immediate{} },
	"nat":       func() expr.Any { return &expr.NAT{} },
	"masq":      func() expr.Any { return &expr.Masq{} },
	"reject":    func() expr.Any { return &expr.Reject{} },
	exprCounter: func() expr.Any { return &expr.Counter{} },
	"objref":    func() expr.Any { return &expr.Objref{} },
	"limit":     func() expr.Any { return &expr.Limit{} },
	"queue":     func() expr.Any { return &expr.Queue{} },
}

// RuleID identifies a rule in the kernel as long as the process runs.
type RuleID struct {
	// Handle is the number of the rule, which the kernel never assigns twice
	// within a table. A rule that replaces another one keeps its handle.
	Handle uint64
	// Hash is a hash of the expressions and the comment. The hash of a rule
	// with an anonymous counter or a quota changes with the packets.
	Hash uint64
}

// hashSeed is the seed of RuleID.Hash.
var hashSeed = maphash.MakeSeed()

// RuleIDs identifies the rules of a chain in their order. It is cheaper than
// Rules.
func (c *Conn) RuleIDs(t *Table, chain string) ([]RuleID, error) {
	return dump(c, kindRule, t, chain, func(msg []byte) (RuleID, bool) {
		id, of := parseRuleID(msg)
		return id, string(of) == chain
	})
}

// parseRuleID returns the identity of a rule, and the name of its chain.
func parseRuleID(msg []byte) (id RuleID, chain []byte) {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	eachAttr(msg, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_RULE_CHAIN:
			chain = bytes.TrimRight(value, "\x00")
		case unix.NFTA_RULE_HANDLE:
			id.Handle = be64(value)
		case unix.NFTA_RULE_EXPRESSIONS, unix.NFTA_RULE_USERDATA:
			h.WriteByte(byte(typ))
			h.Write(value)
		}
	})
	id.Hash = h.Sum64()
	return id, chain
}
