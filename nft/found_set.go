package nft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FindSet reads the description of a set or map, with which FindRows reads
// its rows. The fields of its keys and data are declared by Types. It returns
// nil if the set does not exist.
func (c *Conn) FindSet(t *Table, name string) (*Set, error) {
	body := func(w *messageWriter) {
		w.string(unix.NFTA_SET_TABLE, t.Name)
		w.string(unix.NFTA_SET_NAME, name)
	}
	found, ok, err := find(c, unix.NFT_MSG_GETSET, t.Family, body, parseSet)
	if err == nil && ok {
		var s *Set
		if s, err = found.describe(); err == nil {
			return s, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read set %s of %s: %w", name, t, err)
	}
	return nil, nil
}

// describe returns the description of the set, as far as the kernel stores
// it.
func (f FoundSet) describe() (*Set, error) {
	s := &Set{
		Name:     f.Name,
		Interval: f.flags&unix.NFT_SET_INTERVAL != 0,
		Dynamic:  f.flags&unix.NFT_SET_EVAL != 0,
		Counts:   f.counts,
		Timeouts: f.flags&unix.NFT_SET_TIMEOUT != 0,
		Verdicts: f.flags&unix.NFT_SET_MAP != 0 && f.dataType == unix.NFT_DATA_VERDICT,
	}
	var err error
	if s.Key, err = fieldsOf(f.keyType); err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if f.flags&unix.NFT_SET_MAP != 0 && !s.Verdicts {
		if s.Data, err = fieldsOf(f.dataType); err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
	}
	return s, nil
}

// fieldsOf returns the fields with a type number (see Fields.typeID).
func fieldsOf(id uint32) (Fields, error) {
	const bits = 6
	known := []Type{typeInteger, TypeIPv4Addr, TypeIPv6Addr, TypeInetProto, TypeInetService}
	var types []Type
next:
	for shift := bits * (maxFields - 1); shift >= 0; shift -= bits {
		field := id >> shift & (1<<bits - 1)
		if field == 0 && len(types) == 0 {
			continue
		}
		for _, t := range known {
			if t.id == field {
				types = append(types, t)
				continue next
			}
		}
		return Fields{}, fmt.Errorf("data type %d is unknown", id)
	}
	return Types(types...), nil
}
