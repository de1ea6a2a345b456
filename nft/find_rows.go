package nft

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// maxRequestedRows is the number of rows that one request reads. The kernel
// answers each of them with one message.
const maxRequestedRows = 64

// FindRows reads rows by their keys. found[i] is the row of the kernel with
// the key of rows[i], in a set with ranges the one whose range contains the
// key; its Set is nil if the kernel has no such row. All rows must belong to
// one set. The cost is one lookup per row and does not depend on the size of
// the set.
func (c *Conn) FindRows(t *Table, rows []Row) (found []Row, err error) {
	found = make([]Row, len(rows))
	for at := 0; at < len(rows); {
		requested := rows[at:min(at+maxRequestedRows, len(rows))]
		n, err := c.requestRows(t, requested, found[at:])
		at += n
		if errors.Is(err, unix.ENOENT) {
			at++ // skip the row that the kernel does not have
			continue
		}
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
