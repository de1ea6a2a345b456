package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Found is an object that is in the kernel: a chain or a set of a table, or a rule of a chain.
type Found struct {
	// Name is the name of the object, and of a rule that of its chain.
	Name string
	// Handle is the number that the kernel gave it; it is never given twice within a table.
	Handle uint64
	// Goto is the chain that a rule jumps or goes to, "" if none.
	Goto string
	// Hook says of a base chain where it is hooked, nil of others.
	Hook *Hook
	// Flags, KeyType and DataType describe a set as the kernel and nft number them.
	Flags, KeyType, DataType uint32
}

// SameHook says whether a chain that was found is hooked as c is.
func (f Found) SameHook(c *Chain) bool { return sameHook(f.Hook, c.Hook) }

// Same says whether a set that was found is of the name and type that s describes, so that AddSet leaves it as it is.
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

// Chains returns the chains that the table has in the kernel; none if there is no such table. They are of one generation: if other
// programs keep committing meanwhile, the error is ErrGeneration. What several calls return is of one generation if Generation says
// the same before and after them.
func (c *Conn) Chains(t *Table) ([]Found, error) {
	return dump(c, kindChain, t, "", func(msg []byte) (Found, bool) { return chainIn(msg), true })
}

func chainIn(msg []byte) Found {
	var f Found
	var hook Hook
	attrs(msg, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_CHAIN_NAME:
			f.Name = cString(value)
		case unix.NFTA_CHAIN_HANDLE:
			f.Handle = be64(value)
		case unix.NFTA_CHAIN_HOOK:
			hook.Point, hook.Priority = parseHook(value)
			f.Hook = &hook
		case unix.NFTA_CHAIN_TYPE:
			hook.Type = ChainType(cString(value))
		}
	})
	return f
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

// Sets returns the named sets and maps that the table has in the kernel; none if there is no such table. See Chains on ErrGeneration.
func (c *Conn) Sets(t *Table) ([]Found, error) {
	return dump(c, kindSet, t, "", func(msg []byte) (Found, bool) {
		f := setIn(msg)
		return f, f.Flags&unix.NFT_SET_ANONYMOUS == 0
	})
}

func setIn(msg []byte) Found {
	var f Found
	attrs(msg, func(typ uint16, value []byte) {
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
	return f
}

// Rules returns the rules that a chain has in the kernel, in their order; none if there is no such chain. See Chains on
// ErrGeneration.
func (c *Conn) Rules(t *Table, chain string) ([]Found, error) {
	return dump(c, kindRule, t, chain, func(msg []byte) (Found, bool) {
		f := ruleIn(msg)
		return f, f.Name == chain
	})
}

func ruleIn(msg []byte) Found {
	var f Found
	attrs(msg, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_RULE_CHAIN:
			f.Name = cString(value)
		case unix.NFTA_RULE_HANDLE:
			f.Handle = be64(value)
		case unix.NFTA_RULE_EXPRESSIONS:
			f.Goto = targetOf(value).Goto
		}
	})
	return f
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
