package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// FoundTarget is where a rule that is in the kernel sends packets.
type FoundTarget struct {
	// Chain is the chain that the rule is in.
	Chain string
	// Goto is the chain that the rule jumps or goes to, "" if none.
	Goto string
	// DNAT is the constant address and port to which the rule translates destinations; invalid if it does not.
	DNAT netip.AddrPort
}

// Targets returns where the rules of a table send packets, for those rules that say so by constants. It reads all rules of the
// table. See Chains on ErrGeneration.
func (c *Conn) Targets(t *Table) ([]FoundTarget, error) {
	return dump(c, kindRule, t, "", func(msg []byte) (FoundTarget, bool) {
		target := targetIn(msg)
		return target, target.Goto != "" || target.DNAT.IsValid()
	})
}

func targetIn(msg []byte) FoundTarget {
	var target FoundTarget
	chain := ""
	attrs(msg, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_RULE_CHAIN:
			chain = cString(value)
		case unix.NFTA_RULE_EXPRESSIONS:
			target = targetOf(value)
		}
	})
	target.Chain = chain
	return target
}

// targetOf finds the constants in the expressions of a rule: a verdict with a chain, or an address and a port for DNAT.
func targetOf(exprs []byte) FoundTarget {
	var target FoundTarget
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
		switch name {
		case "immediate":
			i := parseImmediate(data)
			constants[i.register] = i.constant
			if i.chain != "" {
				target.Goto = i.chain
			}
		case "nat":
			n := parseNAT(data)
			if addr, ok := netip.AddrFromSlice(constants[n.addr]); ok && n.single() && len(constants[n.port]) == 2 {
				target.DNAT = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(constants[n.port]))
			}
		default:
			clear(constants) // which it may overwrite
		}
	})
	return target
}

// immediate is what an immediate expression loads: a constant, or a verdict with a chain.
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
					i.chain = verdictChain(value)
				}
			})
		}
	})
	return i
}

func verdictChain(data []byte) (chain string) {
	attrs(data, func(typ uint16, value []byte) {
		if typ == unix.NFTA_VERDICT_CHAIN {
			chain = cString(value)
		}
	})
	return chain
}

// nat is what a nat expression does, and the registers from which it takes the address and the port.
type nat struct {
	isDNAT     bool
	addr, port uint32 // first of the range
	lastAddr   uint32 // last of the range, which is the register of the first if there is but one; 0 for none
	lastPort   uint32
}

// single says whether the expression translates to one address and one port.
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
