package nft

import (
	"encoding/hex"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// FoundSet is a set or map in the kernel.
type FoundSet struct {
	Name string
	// Handle is the number of the set, which the kernel never assigns twice
	// within a table.
	Handle uint64
	// Count is the number of rows, or -1 if the kernel does not report it
	// (before Linux 6.15).
	Count int

	counts            bool
	flags             uint32
	keyType, dataType uint32 // as nft numbers them
	keyLen, dataLen   uint32
}

// Matches reports whether the set has the name and type of s, so that AddSet
// keeps it.
func (f FoundSet) Matches(s *Set) bool {
	dataType := s.Data.typeID()
	if s.Verdicts {
		dataType = unix.NFT_DATA_VERDICT
	}
	return f.Name == s.Name && f.flags == s.flags() && f.counts == s.Counts &&
		f.keyType == s.Key.typeID() && f.dataType == dataType
}

// Sets reads the named sets and maps of the table. It returns none if the
// table does not exist. See Chains for ErrGeneration.
func (c *Conn) Sets(t *Table) ([]FoundSet, error) {
	return dump(c, kindSet, t, "", func(msg []byte) (FoundSet, bool) {
		f := parseSet(msg)
		return f, f.flags&unix.NFT_SET_ANONYMOUS == 0
	})
}

func parseSet(msg []byte) FoundSet {
	f := FoundSet{
		Name: cString(attr(msg, unix.NFTA_SET_NAME)), Handle: be64(attr(msg, nftaSetHandle)), Count: -1,
		flags:   be32(attr(msg, unix.NFTA_SET_FLAGS)),
		keyType: be32(attr(msg, unix.NFTA_SET_KEY_TYPE)), dataType: be32(attr(msg, unix.NFTA_SET_DATA_TYPE)),
		keyLen: be32(attr(msg, unix.NFTA_SET_KEY_LEN)), dataLen: be32(attr(msg, unix.NFTA_SET_DATA_LEN)),
		counts: cString(attr(attr(msg, nftaSetExpr), unix.NFTA_EXPR_NAME)) == counterExpr,
	}
	if n := attr(msg, nftaSetCount); n != nil {
		f.Count = int(be32(n))
	}
	return f
}

// FindSet reads the description of a set or map, with which FindRows reads
// its rows. Types declare the fields of its keys and data; data of a type that
// the package does not know is one field of raw bytes. FindSet returns nil if
// the set does not exist.
func (c *Conn) FindSet(t *Table, name string) (*Set, error) {
	found, ok, err := find(c, kindSet, t, name, parseSet)
	if !ok {
		return nil, err
	}
	s, err := found.describe()
	if err != nil {
		return nil, fmt.Errorf("read set %s of %s: %w", name, t, err)
	}
	return s, nil
}

// describe returns the description of the set, as far as the kernel stores
// it.
func (f FoundSet) describe() (*Set, error) {
	s := &Set{
		Name:     f.Name,
		ranges:   f.flags&nftSetConcat != 0,
		Dynamic:  f.flags&unix.NFT_SET_EVAL != 0,
		Counts:   f.counts,
		Verdicts: f.flags&unix.NFT_SET_MAP != 0 && f.dataType == unix.NFT_DATA_VERDICT,
	}
	var known bool
	if s.Key, known = fieldsOf(f.keyType, f.keyLen); !known && s.ranges {
		return nil, fmt.Errorf("ranges of data type %d are unknown", f.keyType)
	}
	if f.flags&unix.NFT_SET_MAP != 0 && !s.Verdicts {
		s.Data, _ = fieldsOf(f.dataType, f.dataLen)
	}
	return s, nil
}

// nftSetConcat is NFT_SET_CONCAT of linux/netfilter/nf_tables.h: the key has
// several fields, and the last one can be a range (Linux 5.6).
const nftSetConcat = 0x80

// fieldsOf returns the fields with a type number (see Fields.typeID). If a
// field is not known, it returns one field of raw bytes, and known as false.
func fieldsOf(id, length uint32) (f Fields, known bool) {
	const bits = 6
	types := []Type{typeInteger, TypeIPv4Addr, TypeIPv6Addr, TypeInetProto, TypeInetService, TypeClassID}
	var fields []Type
	for shift := bits * (maxFields - 1); shift >= 0; shift -= bits {
		field := id >> shift & (1<<bits - 1)
		if field == 0 && len(fields) == 0 {
			continue
		}
		i := slices.IndexFunc(types, func(t Type) bool { return t.id == field })
		if i < 0 {
			return Types(Type{id: id, name: "raw", size: int(length), order: orderBig, text: hex.EncodeToString}), false
		}
		fields = append(fields, types[i])
	}
	return Types(fields...), true
}
