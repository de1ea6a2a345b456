package nft

import (
	"time"

	"golang.org/x/sys/unix"
)

// maxRowsMessage is the size at which a message of rows ends. The list of
// rows is one attribute, which is limited to 64 KiB. A row takes less than 1
// KiB.
const maxRowsMessage = 60 << 10

// AddRow adds a row to its set. If the set has the row with the same data,
// nothing changes. The commit fails if the set has it with other data.
func (b *Batch) AddRow(r Row) {
	if reason := r.invalid(); reason != "" {
		b.refuse("add element", r.Set.Name+" "+r.KeyText(), reason)
		return
	}
	b.openRows("add element", kindRow.add, unix.NLM_F_CREATE, r.Set)
	elem := b.w.Nest(unix.NFTA_LIST_ELEM)
	b.w.rowKey(&r)
	switch {
	case r.Set.Verdicts:
		b.w.verdict(unix.NFTA_SET_ELEM_DATA, &r.Verdict)
	case r.Set.isMap():
		b.w.value(unix.NFTA_SET_ELEM_DATA, &r.Data, r.Set.Data.size)
	}
	if r.Expires > 0 {
		b.w.Uint64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(max(r.Expires.Milliseconds(), 1)))
	}
	b.w.comment(unix.NFTA_SET_ELEM_USERDATA, r.Comment)
	b.w.Unnest(elem)
}

// DeleteRow deletes the row with the key of r from its set. It ignores the
// data of r. The commit fails if the set has no such row.
func (b *Batch) DeleteRow(r Row) {
	if reason := r.invalidKey(); reason != "" {
		b.refuse("delete element", r.Set.Name+" "+r.KeyText(), reason)
		return
	}
	b.openRows("delete element", kindRow.delete, 0, r.Set)
	elem := b.w.Nest(unix.NFTA_LIST_ELEM)
	b.w.rowKey(&r)
	b.w.Unnest(elem)
}

// rowKey writes the key of a row into its element. In a set whose keys are
// ranges of several fields, it is also the last key.
func (w *messageWriter) rowKey(r *Row) {
	w.value(unix.NFTA_SET_ELEM_KEY, &r.Key, r.Set.Key.size)
	if r.Set.ranges {
		w.value(nftaElemKeyEnd, &r.Key, r.Set.Key.size)
	}
}

// openRows makes the last message accept another row of the set.
func (b *Batch) openRows(op string, typ, flags uint16, s *Set) {
	b.rows++
	if b.openSet == s && b.last().op == op && len(b.w.Buf)-b.openListAt < maxRowsMessage {
		return
	}
	b.closeRows()
	b.start()
	b.openSet = s
	b.messages = append(b.messages, sentMessage{at: b.w.beginNFT(typ, flags, b.table.Family), op: op, set: s})
	b.w.names(kindRow, b.table, s.Name)
	b.openListAt = b.w.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
}

// closeRows completes the message that accepts rows, if any.
func (b *Batch) closeRows() {
	if b.openSet == nil {
		return
	}
	b.w.Unnest(b.openListAt)
	b.w.End(b.last().at)
	b.openSet = nil
	b.refuseOverflow(*b.last())
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
			r.Comment = parseComment(value)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			r.Expires = time.Duration(be64(value)) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPR:
			if cString(attr(value, unix.NFTA_EXPR_NAME)) == counterExpr {
				r.Packets = be64(attr(attr(value, unix.NFTA_EXPR_DATA), unix.NFTA_COUNTER_PACKETS))
			}
		}
	})
	return r
}
