package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Found is an object that is in the kernel: a chain or a set of a table, or a rule of a chain.
type Found struct {
	// Name is the name of the object, and of a rule that of its chain.
	Name string
	// Handle is the number that the kernel gave it; it is never given twice within a table.
	Handle uint64
	// Hook says of a base chain where it is hooked, nil of others.
	Hook *Hook
	// Flags, KeyType and DataType describe a set as the kernel and nft number them.
	Flags, KeyType, DataType uint32
}

// SameHook says whether a chain that was found is hooked as c is.
func (f Found) SameHook(c *Chain) bool {
	return f.Hook == c.Hook || (f.Hook != nil && c.Hook != nil && *f.Hook == *c.Hook)
}

// Same says whether a set that was found is of the type that s describes.
func (f Found) Same(s *Set) bool {
	data := s.Data.typeID()
	if s.Verdicts {
		data = unix.NFT_DATA_VERDICT
	}
	return f.Name == s.Name && f.Flags == s.flags() && f.KeyType == s.Key.typeID() && f.DataType == data
}

// TableHandle returns the handle of the table of that family and name; ok says whether there is one. A table that was deleted and
// made again has another handle.
func (c *Conn) TableHandle(t *Table) (handle uint64, ok bool, err error) {
	err = c.request(unix.NFT_MSG_GETTABLE, 0, t.Family,
		func(w *messageWriter) { w.string(unix.NFTA_TABLE_NAME, t.Name) },
		func(msg []byte) {
			attrs(msg, func(typ uint16, value []byte) {
				if typ == nftaTableHandle {
					handle, ok = be64(value), true
				}
			})
		})
	if errors.Is(err, unix.ENOENT) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read %s: %w", t, err)
	}
	return handle, ok, nil
}

// Chains returns the chains that the table has in the kernel.
func (c *Conn) Chains(t *Table) ([]Found, error) {
	return c.find("chains", unix.NFT_MSG_GETCHAIN, t, unix.NFTA_CHAIN_TABLE, "", func(f *Found, typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_CHAIN_NAME:
			f.Name = cString(value)
		case unix.NFTA_CHAIN_HANDLE:
			f.Handle = be64(value)
		case unix.NFTA_CHAIN_HOOK:
			f.hook().Point, f.hook().Priority = parseHook(value)
		case unix.NFTA_CHAIN_TYPE:
			f.hook().Type = ChainType(cString(value))
		}
	})
}

func (f *Found) hook() *Hook {
	if f.Hook == nil {
		f.Hook = new(Hook)
	}
	return f.Hook
}

func parseHook(b []byte) (point HookPoint, priority int32) {
	attrs(b, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_HOOK_HOOKNUM:
			point = HookPoint(be32(value))
		case unix.NFTA_HOOK_PRIORITY:
			priority = int32(be32(value))
		}
	})
	return point, priority
}

// Sets returns the named sets and maps that the table has in the kernel.
func (c *Conn) Sets(t *Table) ([]Found, error) {
	return c.find("sets", unix.NFT_MSG_GETSET, t, unix.NFTA_SET_TABLE, "", func(f *Found, typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_SET_NAME:
			f.Name = cString(value)
		case nftaSetHandle:
			f.Handle = be64(value)
		case unix.NFTA_SET_FLAGS:
			f.Flags = be32(value)
		case unix.NFTA_SET_KEY_TYPE:
			f.KeyType = be32(value)
		case unix.NFTA_SET_DATA_TYPE:
			f.DataType = be32(value)
		}
	})
}

// Rules returns the rules that a chain has in the kernel, in their order; none if there is no such chain.
func (c *Conn) Rules(t *Table, chain string) ([]Found, error) {
	return c.find("rules", unix.NFT_MSG_GETRULE, t, unix.NFTA_RULE_TABLE, chain, func(f *Found, typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_RULE_CHAIN:
			f.Name = cString(value)
		case unix.NFTA_RULE_HANDLE:
			f.Handle = be64(value)
		}
	})
}

// find dumps objects of one kind. Kernels differ in whether they filter by table, so it does that itself.
func (c *Conn) find(kind string, typ uint16, t *Table, tableAttr uint16, chain string, attr func(*Found, uint16, []byte)) ([]Found, error) {
	var found []Found
	err := c.request(typ, unix.NLM_F_DUMP, t.Family,
		func(w *messageWriter) {
			w.string(tableAttr, t.Name)
			if chain != "" {
				w.string(unix.NFTA_RULE_CHAIN, chain)
			}
		},
		func(msg []byte) {
			var f Found
			table := ""
			attrs(msg, func(typ uint16, value []byte) {
				if typ == tableAttr {
					table = cString(value)
				}
				attr(&f, typ, value)
			})
			if table == t.Name {
				found = append(found, f)
			}
		})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", kind, t, err)
	}
	return found, nil
}

func be32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func be64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// FoundTarget is where a rule that is in the kernel sends packets.
type FoundTarget struct {
	// Chain is the chain that the rule is in.
	Chain string
	// Goto is the chain that the rule jumps or goes to, "" if none.
	Goto string
	// DNAT is the constant address and port to which the rule translates destinations; invalid if it does not.
	DNAT netip.AddrPort
}

// Targets returns where the rules of a table send packets, for those rules that say so by constants. It reads all rules of the table.
func (c *Conn) Targets(t *Table) ([]FoundTarget, error) {
	var targets []FoundTarget
	_, err := c.find("rules", unix.NFT_MSG_GETRULE, t, unix.NFTA_RULE_TABLE, "", func(f *Found, typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_RULE_CHAIN:
			f.Name = cString(value)
		case unix.NFTA_RULE_EXPRESSIONS:
			if target := targetOf(value); target != (FoundTarget{}) {
				target.Chain = f.Name
				targets = append(targets, target)
			}
		}
	})
	return targets, err
}

// targetOf finds the constants in the expressions of a rule: a verdict with a chain, or an address and a port.
func targetOf(exprs []byte) FoundTarget {
	var target FoundTarget
	var addr netip.Addr
	attrs(exprs, func(_ uint16, e []byte) {
		name := ""
		attrs(e, func(typ uint16, value []byte) {
			switch {
			case typ == unix.NFTA_EXPR_NAME:
				name = cString(value)
			case typ == unix.NFTA_EXPR_DATA && name == "immediate":
				chain, constant := immediate(value)
				if chain != "" {
					target.Goto = chain
				}
				if a, ok := netip.AddrFromSlice(constant); ok {
					addr = a
				}
				if len(constant) == 2 && addr.IsValid() {
					target.DNAT = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(constant))
				}
			}
		})
	})
	return target
}

// immediate returns what an immediate expression loads: the chain of a verdict, or a constant.
func immediate(data []byte) (chain string, constant []byte) {
	attrs(data, func(typ uint16, value []byte) {
		if typ != unix.NFTA_IMMEDIATE_DATA {
			return
		}
		attrs(value, func(typ uint16, value []byte) {
			switch typ {
			case unix.NFTA_DATA_VALUE:
				constant = value
			case unix.NFTA_DATA_VERDICT:
				attrs(value, func(typ uint16, value []byte) {
					if typ == unix.NFTA_VERDICT_CHAIN {
						chain = cString(value)
					}
				})
			}
		})
	})
	return chain, constant
}
