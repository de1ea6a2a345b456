package nft

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
	"github.com/nftproxy/nftproxy/nft/notation"
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
	dataType := s.Data.TypeID()
	if s.Verdicts {
		dataType = unix.NFT_DATA_VERDICT
	}
	return f.Name == s.Name && f.flags == s.flags() && f.counts == s.Counts &&
		f.keyType == s.Key.TypeID() && f.dataType == dataType
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
		counts: cString(attr(attr(msg, nftaSetExpr), unix.NFTA_EXPR_NAME)) == exprCounter,
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
	if s.Key, known = notation.FieldsOf(f.keyType, f.keyLen); !known && s.ranges {
		return nil, fmt.Errorf("ranges of data type %d are unknown", f.keyType)
	}
	if f.flags&unix.NFT_SET_MAP != 0 && !s.Verdicts {
		s.Data, _ = notation.FieldsOf(f.dataType, f.dataLen)
	}
	return s, nil
}

// nftSetConcat is NFT_SET_CONCAT of linux/netfilter/nf_tables.h: the key has
// several fields, and the last one can be a range (Linux 5.6).
const nftSetConcat = 0x80

// maxRequestedRows is the number of rows that one request reads. The kernel
// answers each of them with one message, and ends at the first row that it does
// not have. So FindRows requests fewer rows after a missing one.
const maxRequestedRows = 64

// FindRows reads rows by their keys. found[i] is the row of the kernel with
// the key of rows[i], in a set with ranges the one whose range contains the
// key; its Set is nil if the kernel has no such row. All rows must belong to
// one set. The cost is one lookup per row and does not depend on the size of
// the set.
func (c *Conn) FindRows(t *Table, rows []Row) (found []Row, err error) {
	found = make([]Row, len(rows))
	for at, most := 0, maxRequestedRows; at < len(rows); {
		requested := rows[at:min(at+most, len(rows))]
		n, err := c.requestRows(t, requested, found[at:])
		at += n
		if errors.Is(err, unix.ENOENT) {
			at++ // skip the row that the kernel does not have
			most = max(1, n)
			continue
		}
		most = min(2*most, maxRequestedRows)
		if err == nil && n < len(requested) {
			err = nfnetlink.ErrIncomplete
		}
		if err != nil {
			return nil, fmt.Errorf("read rows of set %s of %s: %w", rows[0].Set.Name, t, err)
		}
	}
	return found, nil
}

// requestRows sends one request for rows and stores the answers in found. It
// returns their number. The kernel stops with ENOENT at the first row that it
// does not have.
func (c *Conn) requestRows(t *Table, rows, found []Row) (n int, err error) {
	set := rows[0].Set
	err = c.request(unix.NFT_MSG_GETSETELEM, 0, t.Family,
		func(w *messageWriter) {
			w.names(kindRow, t, set.Name)
			list := w.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			for i := range rows {
				elem := w.Nest(unix.NFTA_LIST_ELEM)
				w.rowKey(&rows[i])
				w.Unnest(elem)
			}
			w.Unnest(list)
		},
		func(msg []byte) {
			if n < len(rows) {
				found[n] = parseRow(msg, set)
				n++
			}
		})
	return n, err
}

// Rows reads all rows of a set. It returns none if the set does not exist. It
// is only suitable for small sets: the time that the kernel takes is
// quadratic in the number of rows.
func (c *Conn) Rows(t *Table, set *Set) ([]Row, error) {
	lists, err := dump(c, kindRow, t, set.Name, func(msg []byte) ([]Row, bool) { return parseRows(msg, set), true })
	return slices.Concat(lists...), err
}

// parseRow returns the row in a message that answers the request for one row.
func parseRow(msg []byte, set *Set) Row {
	if rows := parseRows(msg, set); len(rows) > 0 {
		return rows[0]
	}
	return Row{Set: set}
}

// parseRows returns the rows in a message that lists rows.
func parseRows(msg []byte, set *Set) (rows []Row) {
	eachAttr(attr(msg, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, elem []byte) {
		rows = append(rows, parseElement(elem, set))
	})
	return rows
}

// parseElement returns the row that an element of a set describes.
func parseElement(attributes []byte, set *Set) Row {
	r := Row{Set: set}
	eachAttr(attributes, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			r.Key = parseTuple(value)
		case unix.NFTA_SET_ELEM_DATA:
			r.Data, r.Verdict = parseTuple(value), parseVerdict(value)
		case unix.NFTA_SET_ELEM_USERDATA:
			r.Comment = notation.ParseComment(value)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			r.Expires = time.Duration(be64(value)) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPR:
			if cString(attr(value, unix.NFTA_EXPR_NAME)) == exprCounter {
				r.Packets = be64(attr(attr(value, unix.NFTA_EXPR_DATA), unix.NFTA_COUNTER_PACKETS))
			}
		}
	})
	return r
}

// SampleRows reads some rows of a set: the first that the kernel lists. The
// cost does not depend on the size of the set. It returns none if the set does
// not exist. It uses a connection of its own, which it closes, to end the
// kernel's listing.
func SampleRows(t *Table, set *Set) ([]Row, error) {
	c, err := Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	w := newRequest(c.socket, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, t.Family,
		func(w *messageWriter) { w.names(kindRow, t, set.Name) })
	errEnough := errors.New("read enough")
	var rows []Row
	err = c.socket.Request(&w.Writer, func(msg nfnetlink.Message) error { // has as many rows as fit
		rows = parseRows(msg.Attributes(), set)
		return errEnough
	})
	if errors.Is(err, errEnough) || errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return rows, err
}
