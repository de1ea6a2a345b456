package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// FoundRule is a rule in the kernel.
type FoundRule struct {
	// Handle is the number that the kernel gave it. The kernel never gives a
	// number twice within a table.
	Handle uint64
	RuleContent
}

// RuleContent is what can be read back of a rule: the kinds of its expressions
// in their order, and of some expressions their constants. Two rules of the
// same content can still differ in what is not part of it, such as the constant
// that a value is compared with.
type RuleContent struct {
	// Expressions are the kernel's names of the expressions: payload, lookup.
	Expressions []string
	// Sets are the sets that the rule looks values up in or adds values to.
	Sets []string
	// Numgens are the numbers that the rule generates.
	Numgens []Numgen
	// Timeout is the timeout of the element that the rule adds, 0 if none.
	Timeout time.Duration
	// Goto is the chain that the rule jumps or goes to, "" if none.
	Goto string
	// DNAT is the constant address and port to which the rule translates
	// destinations; the zero AddrPort if it does not.
	DNAT netip.AddrPort
}

// Numgen is a generated number: from Offset to Offset+Mod-1.
type Numgen struct{ Mod, Offset uint32 }

// Equal reports whether two rules have the same content.
func (c RuleContent) Equal(o RuleContent) bool {
	return slices.Equal(c.Expressions, o.Expressions) && slices.Equal(c.Sets, o.Sets) && slices.Equal(c.Numgens, o.Numgens) &&
		c.Timeout == o.Timeout && c.Goto == o.Goto && c.DNAT == o.DNAT
}

// Content returns the content that the rule has in a table of the family.
func (r Rule) Content(f Family) RuleContent {
	var w messageWriter
	for _, s := range r.Statements {
		for _, e := range s.exprs {
			if err := w.expr(f, e); err != nil {
				return RuleContent{} // Commit refuses the rule
			}
		}
	}
	return parseRuleContent(w.buf)
}

// Rules returns the rules that a chain has in the kernel, in their order; none
// if there is no such chain. See Chains on ErrGeneration.
func (c *Conn) Rules(t *Table, chain string) ([]FoundRule, error) {
	return dump(c, kindRule, t, chain, func(msg []byte) (FoundRule, bool) {
		rule, of := ruleIn(msg)
		return rule, of == chain
	})
}

// RuleHandles returns the handles of the rules of a chain. It costs less than
// Rules.
func (c *Conn) RuleHandles(t *Table, chain string) ([]uint64, error) {
	return dump(c, kindRule, t, chain, func(msg []byte) (handle uint64, ok bool) {
		attrs(msg, func(typ uint16, value []byte) {
			switch typ {
			case unix.NFTA_RULE_CHAIN:
				ok = cString(value) == chain
			case unix.NFTA_RULE_HANDLE:
				handle = be64(value)
			}
		})
		return handle, ok
	})
}

func ruleIn(msg []byte) (rule FoundRule, chain string) {
	attrs(msg, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_RULE_CHAIN:
			chain = cString(value)
		case unix.NFTA_RULE_HANDLE:
			rule.Handle = be64(value)
		case unix.NFTA_RULE_EXPRESSIONS:
			rule.RuleContent = parseRuleContent(value)
		}
	})
	return rule, chain
}

// parseRuleContent parses the expressions of a rule.
func parseRuleContent(exprs []byte) RuleContent {
	var c RuleContent
	constants := make(map[uint32][]byte) // by register
	attrs(exprs, func(_ uint16, e []byte) {
		var name string
		var data []byte
		attrs(e, func(typ uint16, value []byte) {
			switch typ {
			case unix.NFTA_EXPR_NAME:
				name = cString(value)
			case unix.NFTA_EXPR_DATA:
				data = value
			}
		})
		c.Expressions = append(c.Expressions, name)
		switch name {
		case "immediate":
			i := parseImmediate(data)
			constants[i.register] = i.constant
			if i.chain != "" {
				c.Goto = i.chain
			}
		case "nat":
			n := parseNAT(data)
			if addr, ok := netip.AddrFromSlice(constants[n.addr]); ok && n.single() && len(constants[n.port]) == 2 {
				c.DNAT = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(constants[n.port]))
			}
		case "lookup":
			c.Sets = append(c.Sets, stringAttr(data, unix.NFTA_LOOKUP_SET))
		case "dynset":
			c.Sets = append(c.Sets, stringAttr(data, unix.NFTA_DYNSET_SET_NAME))
			c.Timeout = time.Duration(u64Attr(data, unix.NFTA_DYNSET_TIMEOUT)) * time.Millisecond
		case "numgen":
			c.Numgens = append(c.Numgens, parseNumgen(data))
		}
		if name != "immediate" {
			clear(constants) // the expression may overwrite them
		}
	})
	return c
}

func parseNumgen(data []byte) Numgen {
	var n Numgen
	attrs(data, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_NG_MODULUS:
			n.Mod = be32(value)
		case unix.NFTA_NG_OFFSET:
			n.Offset = be32(value)
		}
	})
	return n
}

func stringAttr(data []byte, attribute uint16) (s string) {
	attrs(data, func(typ uint16, value []byte) {
		if typ == attribute {
			s = cString(value)
		}
	})
	return s
}

func u64Attr(data []byte, attribute uint16) (v uint64) {
	attrs(data, func(typ uint16, value []byte) {
		if typ == attribute {
			v = be64(value)
		}
	})
	return v
}

// immediate is a constant, or a verdict with a chain, that an immediate
// expression loads.
type immediate struct {
	register uint32
	constant []byte
	chain    string
}

func parseImmediate(data []byte) immediate {
	var i immediate
	attrs(data, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_IMMEDIATE_DREG:
			i.register = be32(value)
		case unix.NFTA_IMMEDIATE_DATA:
			attrs(value, func(typ uint16, value []byte) {
				switch typ {
				case unix.NFTA_DATA_VALUE:
					i.constant = value
				case unix.NFTA_DATA_VERDICT:
					i.chain = stringAttr(value, unix.NFTA_VERDICT_CHAIN)
				}
			})
		}
	})
	return i
}

// nat is what a nat expression does, and the registers from which it takes the
// address and the port.
type nat struct {
	isDNAT     bool
	addr, port uint32 // first of the range
	lastAddr   uint32 // last of the range: the first if there is one only, 0 for none
	lastPort   uint32
}

// single reports whether the expression translates to one address and port.
func (n nat) single() bool {
	return n.isDNAT && (n.lastAddr == n.addr || n.lastAddr == 0) && (n.lastPort == n.port || n.lastPort == 0)
}

func parseNAT(data []byte) nat {
	var n nat
	attrs(data, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_NAT_TYPE:
			n.isDNAT = be32(value) == unix.NFT_NAT_DNAT
		case unix.NFTA_NAT_REG_ADDR_MIN:
			n.addr = be32(value)
		case unix.NFTA_NAT_REG_ADDR_MAX:
			n.lastAddr = be32(value)
		case unix.NFTA_NAT_REG_PROTO_MIN:
			n.port = be32(value)
		case unix.NFTA_NAT_REG_PROTO_MAX:
			n.lastPort = be32(value)
		}
	})
	return n
}
