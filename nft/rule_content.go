package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// RuleContent is the part of a rule that can be read back from the kernel:
// the names of its expressions in their order, and some of their constants.
// Rules with equal content can still differ, for example in the constant with
// which they compare a value.
type RuleContent struct {
	// Sets are the sets in which the rule looks up values or to which it adds
	// them.
	Sets []string
	// Counters are the named counters that count packets of the rule.
	Counters []string
	// Numgens are the numbers that the rule generates.
	Numgens []Numgen
	// Goto is the target of a jump or goto, "" if the rule has none.
	Goto string
	// DNAT is the constant address and port to which the rule translates
	// destinations. It is the zero AddrPort if the rule does not translate to
	// a constant.
	DNAT netip.AddrPort

	expressions []string
	timeout     time.Duration // of the row that the rule adds, 0 for none
}

// Numgen is a generated number in the range from Offset to Offset+Mod-1.
type Numgen struct{ Mod, Offset uint32 }

// Equal reports whether two rules have the same content.
func (c RuleContent) Equal(o RuleContent) bool {
	return slices.Equal(c.expressions, o.expressions) && slices.Equal(c.Sets, o.Sets) &&
		slices.Equal(c.Counters, o.Counters) && slices.Equal(c.Numgens, o.Numgens) &&
		c.timeout == o.timeout && c.Goto == o.Goto && c.DNAT == o.DNAT
}

// Content returns the content of the rule in a table of the family.
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

// parseRuleContent parses the expressions of a rule.
func parseRuleContent(exprs []byte) RuleContent {
	var c RuleContent
	constants := make(map[uint32][]byte) // by register
	eachAttr(exprs, func(_ uint16, e []byte) {
		name, data := cString(attr(e, unix.NFTA_EXPR_NAME)), attr(e, unix.NFTA_EXPR_DATA)
		c.expressions = append(c.expressions, name)
		switch name {
		case "immediate":
			value := attr(data, unix.NFTA_IMMEDIATE_DATA)
			constants[be32(attr(data, unix.NFTA_IMMEDIATE_DREG))] = attr(value, unix.NFTA_DATA_VALUE)
			if chain := parseVerdict(value).chain; chain != "" {
				c.Goto = chain
			}
		case "nat":
			n := parseNAT(data)
			addr, ok := netip.AddrFromSlice(constants[n.addr])
			if port := constants[n.port]; ok && n.single() && len(port) == 2 {
				c.DNAT = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(port))
			}
		case "lookup":
			c.Sets = append(c.Sets, cString(attr(data, unix.NFTA_LOOKUP_SET)))
		case "dynset":
			c.Sets = append(c.Sets, cString(attr(data, unix.NFTA_DYNSET_SET_NAME)))
			c.timeout = time.Duration(be64(attr(data, unix.NFTA_DYNSET_TIMEOUT))) * time.Millisecond
		case "objref":
			c.Counters = append(c.Counters, cString(attr(data, unix.NFTA_OBJREF_IMM_NAME)))
		case "numgen":
			c.Numgens = append(c.Numgens, parseNumgen(data))
		}
		if name != "immediate" {
			clear(constants) // the expression may overwrite registers
		}
	})
	return c
}

func parseNumgen(data []byte) Numgen {
	return Numgen{Mod: be32(attr(data, unix.NFTA_NG_MODULUS)), Offset: be32(attr(data, unix.NFTA_NG_OFFSET))}
}

// nat is a nat expression: its type, and the registers with the ranges of
// addresses and ports.
type nat struct {
	isDNAT         bool
	addr, lastAddr uint32 // lastAddr is addr or 0 if there is only one address
	port, lastPort uint32
}

// single reports whether the expression translates to one address and port.
func (n nat) single() bool {
	return n.isDNAT && (n.lastAddr == n.addr || n.lastAddr == 0) && (n.lastPort == n.port || n.lastPort == 0)
}

func parseNAT(data []byte) nat {
	return nat{
		isDNAT:   be32(attr(data, unix.NFTA_NAT_TYPE)) == unix.NFT_NAT_DNAT,
		addr:     be32(attr(data, unix.NFTA_NAT_REG_ADDR_MIN)),
		lastAddr: be32(attr(data, unix.NFTA_NAT_REG_ADDR_MAX)),
		port:     be32(attr(data, unix.NFTA_NAT_REG_PROTO_MIN)),
		lastPort: be32(attr(data, unix.NFTA_NAT_REG_PROTO_MAX)),
	}
}
