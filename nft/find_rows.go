package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// maxAskedRows is the number of rows that one request asks for. Each is
// answered by a message of its own.
const maxAskedRows = 64

// FindRows reads rows by their keys. found[i] is the row that the kernel has
// under the key of rows[i]; its Set is nil if there is none. All rows must be of
// one set. The cost is that of a lookup for each row, however large the set is.
func (c *Conn) FindRows(t *Table, rows []Row) (found []Row, err error) {
	found = make([]Row, len(rows))
	for at := 0; at < len(rows); {
		asked := rows[at:min(at+maxAskedRows, len(rows))]
		n, err := c.findRows(t, asked, found[at:])
		at += n
		switch {
		case errors.Is(err, unix.ENOENT): // for the row after those found
			at++
		case err != nil:
			return nil, fmt.Errorf("read rows of set %s of %s: %w", rows[0].Set.Name, t, err)
		case n < len(asked):
			return nil, fmt.Errorf("read rows of set %s of %s: %w", rows[0].Set.Name, t, errIncomplete)
		}
	}
	return found, nil
}

// Rows reads all rows of a set; none if there is no such set. It is for small sets:
// the time that the kernel takes grows with the square of the number of rows.
func (c *Conn) Rows(t *Table, set *Set) ([]Row, error) {
	var rows []Row
	_, err := c.Snapshot(func() error {
		rows = nil
		return c.request(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, t.Family,
			func(w *messageWriter) {
				w.string(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
				w.string(unix.NFTA_SET_ELEM_LIST_SET, set.Name)
			},
			func(msg []byte) { rows = append(rows, rowsOfList(msg, set)...) })
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read set %s of %s: %w", set.Name, t, err)
	}
	return rows, nil
}

// findRows sends one request for rows and fills found with the answers. It
// returns how many there were: the kernel stops at the first row that it does
// not have.
func (c *Conn) findRows(t *Table, rows, found []Row) (n int, err error) {
	set := rows[0].Set
	err = c.request(unix.NFT_MSG_GETSETELEM, 0, t.Family,
		func(w *messageWriter) {
			w.string(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
			w.string(unix.NFTA_SET_ELEM_LIST_SET, set.Name)
			list := w.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			for i := range rows {
				elem := w.nest(unix.NFTA_LIST_ELEM)
				w.rowKey(&rows[i])
				w.unnest(elem)
			}
			w.unnest(list)
		},
		func(msg []byte) {
			if n < len(rows) {
				found[n] = rowIn(msg, set)
				n++
			}
		})
	return n, err
}

// rowIn returns the row of a message that answers a request for one.
func rowIn(msg []byte, set *Set) Row {
	if rows := rowsOfList(msg, set); len(rows) > 0 {
		return rows[0]
	}
	return Row{Set: set}
}

// rowsOfList returns the rows of a message that lists some.
func rowsOfList(msg []byte, set *Set) (rows []Row) {
	attrs(msg, func(typ uint16, list []byte) {
		if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		attrs(list, func(_ uint16, elem []byte) {
			row := Row{Set: set}
			row.parse(elem)
			rows = append(rows, row)
		})
	})
	return rows
}

// parse reads the attributes of an element into the row.
func (r *Row) parse(elem []byte) {
	attrs(elem, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			r.Key = parseTuple(value)
		case nftaElemKeyEnd:
			r.KeyEnd = parseTuple(value)
		case unix.NFTA_SET_ELEM_DATA:
			r.Data, r.Verdict = parseElementData(value)
		case unix.NFTA_SET_ELEM_USERDATA:
			r.Comment = parseComment(value)
		}
	})
	if r.KeyEnd == r.Key { // sets with ranges have an end for single keys too
		r.KeyEnd = Tuple{}
	}
}

// parseElementData returns the data of an element of a map: a value or a verdict.
func parseElementData(data []byte) (value Tuple, verdict Verdict) {
	attrs(data, func(typ uint16, b []byte) {
		switch typ {
		case unix.NFTA_DATA_VALUE:
			if len(b) <= maxTuple {
				value = Tuple{}.append(b)
			}
		case unix.NFTA_DATA_VERDICT:
			attrs(b, func(typ uint16, b []byte) {
				switch typ {
				case unix.NFTA_VERDICT_CODE:
					verdict.code = int32(be32(b))
				case unix.NFTA_VERDICT_CHAIN:
					verdict.chain = cString(b)
				}
			})
		}
	})
	return value, verdict
}

// parseComment returns the comment in the user data of an element.
func parseComment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if data[0] == udataComment {
			return cString(data[2 : 2+data[1]])
		}
		data = data[2+data[1]:]
	}
	return ""
}

// SameAs reports whether r, a row that was found, is what AddRow(want) wrote.
func (r Row) SameAs(want Row) bool {
	if want.KeyEnd == want.Key {
		want.KeyEnd = Tuple{}
	}
	want.Comment = storedComment(want.Comment)
	return r == want
}
