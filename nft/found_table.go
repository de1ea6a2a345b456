package nft

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/notation"
)

// FoundTable is a table in the kernel.
type FoundTable struct {
	// Handle is the number of the table. A table that is deleted and added
	// again has another handle.
	Handle uint64
	// Flags are the flags of the table (NFT_TABLE_F_*).
	Flags uint32
}

// FindTable reads the table with the family and name of t. It returns ok as
// false if the table does not exist.
func (c *Conn) FindTable(t *Table) (found FoundTable, ok bool, err error) {
	return find(c, kindTable, t, "", parseTable)
}

func parseTable(msg []byte) FoundTable {
	return FoundTable{Handle: be64(attr(msg, nftaTableHandle)), Flags: be32(attr(msg, unix.NFTA_TABLE_FLAGS))}
}

// FindCounter reads a counter of the table. It returns ok as false if the
// counter does not exist.
func (c *Conn) FindCounter(t *Table, name string) (found Counter, ok bool, err error) {
	return find(c, kindCounter, t, name, parseCounter)
}

// Counters reads the counters of the table. It returns none if the table does
// not exist. See Chains for ErrGeneration.
func (c *Conn) Counters(t *Table) ([]Counter, error) {
	return dump(c, kindCounter, t, "", func(msg []byte) (Counter, bool) {
		return parseCounter(msg), be32(attr(msg, unix.NFTA_OBJ_TYPE)) == unix.NFT_OBJECT_COUNTER
	})
}

func parseCounter(msg []byte) Counter {
	data := attr(msg, unix.NFTA_OBJ_DATA)
	return Counter{
		Name: cString(attr(msg, unix.NFTA_OBJ_NAME)), Handle: be64(attr(msg, nftaObjHandle)),
		Packets: be64(attr(data, unix.NFTA_COUNTER_PACKETS)),
	}
}

// FindChain reads a chain of the table. It returns ok as false if the chain
// does not exist.
func (c *Conn) FindChain(t *Table, name string) (found Chain, ok bool, err error) {
	return find(c, kindChain, t, name, parseChain)
}

// Chains reads the chains of the table. It returns none if the table does not
// exist. All of them belong to one generation; the error is ErrGeneration if
// other programs keep committing. Snapshot makes several calls read one
// generation.
func (c *Conn) Chains(t *Table) ([]Chain, error) {
	return dump(c, kindChain, t, "", func(msg []byte) (Chain, bool) { return parseChain(msg), true })
}

func parseChain(msg []byte) Chain {
	c := Chain{Name: cString(attr(msg, unix.NFTA_CHAIN_NAME)), Handle: be64(attr(msg, unix.NFTA_CHAIN_HANDLE))}
	if hook := attr(msg, unix.NFTA_CHAIN_HOOK); hook != nil {
		c.Hook = &Hook{
			Type:     ChainType(cString(attr(msg, unix.NFTA_CHAIN_TYPE))),
			Point:    HookPoint(be32(attr(hook, unix.NFTA_HOOK_HOOKNUM))),
			Priority: int32(be32(attr(hook, unix.NFTA_HOOK_PRIORITY))),
			Drop:     be32(attr(msg, unix.NFTA_CHAIN_POLICY)) == policyDrop,
		}
	}
	return c
}

// OtherChain is a base chain of a table of any program.
type OtherChain struct {
	Table *Table
	Chain
}

// BaseChains reads the base chains of all tables of a family that packets
// pass, without dormant tables.
func (c *Conn) BaseChains(f Family) ([]OtherChain, error) {
	var chains []OtherChain
	_, err := c.Snapshot(func() error {
		chains = nil
		dormant := make(map[string]bool)
		err := c.request(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, f, nil, func(msg []byte) {
			dormant[cString(attr(msg, unix.NFTA_TABLE_NAME))] = parseTable(msg).Flags&unix.NFT_TABLE_F_DORMANT != 0
		})
		if err != nil {
			return err
		}
		return c.request(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, f, nil, func(msg []byte) {
			table := &Table{Family: f, Name: cString(attr(msg, unix.NFTA_CHAIN_TABLE))}
			if chain := parseChain(msg); chain.Hook != nil && !dormant[table.Name] {
				chains = append(chains, OtherChain{table, chain})
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read base chains of family %s: %w", f, err)
	}
	return chains, nil
}

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
