package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Found is an object in the kernel: a table, or a chain or set of a table.
type Found struct {
	Name string
	// Handle is the number that the kernel gave it. The kernel never gives a
	// number twice within a table.
	Handle uint64
	// Hook is where a base chain is hooked, nil for other chains.
	Hook *Hook
	// Policy is the policy of a base chain: the kernel's NF_ACCEPT or NF_DROP.
	Policy uint32
	// Flags are the flags of a table or a set, KeyType and DataType the types
	// of a set, as the kernel and nft number them.
	Flags, KeyType, DataType uint32
	// Count is the number of rows of a set, -1 if the kernel does not report it
	// (before Linux 6.15).
	Count int
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

// FindTable returns the table of that family and name; ok reports whether there
// is one. A table that was deleted and added again has another handle.
func (c *Conn) FindTable(t *Table) (found Found, ok bool, err error) {
	err = c.request(unix.NFT_MSG_GETTABLE, 0, t.Family,
		func(w *messageWriter) { w.string(unix.NFTA_TABLE_NAME, t.Name) },
		func(msg []byte) { found, ok = tableIn(msg), true })
	if errors.Is(err, unix.ENOENT) {
		return Found{}, false, nil
	}
	if err != nil {
		return Found{}, false, fmt.Errorf("read %s: %w", t, err)
	}
	return found, ok, nil
}

func tableIn(msg []byte) Found {
	var f Found
	attrs(msg, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_TABLE_NAME:
			f.Name = cString(value)
		case unix.NFTA_TABLE_FLAGS:
			f.Flags = be32(value)
		case nftaTableHandle:
			f.Handle = be64(value)
		}
	})
	return f
}

// FindChain returns the chain of that name; ok reports whether there is one.
func (c *Conn) FindChain(t *Table, name string) (found Found, ok bool, err error) {
	err = c.request(unix.NFT_MSG_GETCHAIN, 0, t.Family,
		func(w *messageWriter) {
			w.string(unix.NFTA_CHAIN_TABLE, t.Name)
			w.string(unix.NFTA_CHAIN_NAME, name)
		},
		func(msg []byte) { found, ok = chainIn(msg), true })
	if errors.Is(err, unix.ENOENT) {
		return Found{}, false, nil
	}
	if err != nil {
		return Found{}, false, fmt.Errorf("read chain %s of %s: %w", name, t, err)
	}
	return found, ok, nil
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
		case unix.NFTA_CHAIN_POLICY:
			f.Policy = be32(value)
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
	f := Found{Count: -1}
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
		case nftaSetCount:
			f.Count = int(be32(value))
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
