package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// problem explains an error that the kernel reported about a message of the batch.
//
// Which row of several it refuses the kernel says by the offset of its attribute: Linux 6.1, 6.12 and 6.18 do, 5.10 does not. Where it
// does not, the problem has no key, and a tag only if all rows of the message have the same (see Batch.Isolate).
func (b *Batch) problem(r reply) Problem {
	p := Problem{Op: opCommit, Errno: r.errno, Message: r.message}
	m, body, ok := b.messageOf(r.seq)
	if !ok {
		return p
	}
	p.Op, p.Object = m.op.String(), m.objectText()
	p.Tag = b.tagIn(m.at, m.at+len(body))
	if m.set == nil {
		return p
	}
	if row, ok := rowAt(m.set, body, int(r.offset)); ok {
		p.Object += " " + row.text
		p.Tag = b.tagIn(m.at+row.from, m.at+row.to)
	}
	return p
}

// refuse notes what cannot be put into a message. Commit then refuses the batch.
func (b *Batch) refuse(op operation, object, why string) {
	p := Problem{Op: op.String(), Object: object, Errno: unix.EINVAL, Message: why}
	if n := len(b.tags); n > 0 {
		p.Tag = b.tags[n-1].tag
	}
	b.refused = append(b.refused, p)
}

// messageOf returns the message of a sequence number and its bytes.
func (b *Batch) messageOf(seq uint32) (m sentMessage, body []byte, ok bool) {
	i := int(seq) - beginSeq - 1
	if i < 0 || i >= len(b.messages) {
		return m, nil, false
	}
	m = b.messages[i]
	n := int(binary.NativeEndian.Uint32(b.w.buf[m.at:]))
	return m, b.w.buf[m.at : m.at+n], true
}

// sentRow is a row within a message of rows.
type sentRow struct {
	from, to int    // offsets in the message
	text     string // its key in nft syntax
}

// rowAt finds the row of a message of rows in which offset lies, or the only row of the message.
func rowAt(s *Set, msg []byte, offset int) (row sentRow, ok bool) {
	rows := rowsIn(msg)
	for _, row = range rows {
		if len(rows) == 1 || (offset >= row.from && offset < row.to) {
			row.text = rowKeyText(s, msg[row.from:row.to])
			return row, true
		}
	}
	return sentRow{}, false
}

// rowsIn returns where the rows of a message of rows are.
func rowsIn(msg []byte) []sentRow {
	var rows []sentRow
	eachAttr(msg, nlmsgHeaderLen+nfgenmsgLen, func(typ uint16, from, to int) {
		if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		eachAttr(msg[:to], from+attrHeaderLen, func(_ uint16, from, to int) {
			if n := len(rows); n > 0 && parseElement(msg[from+attrHeaderLen:to]).intervalEnd {
				rows[n-1].to = to // it belongs to the element before
				return
			}
			rows = append(rows, sentRow{from: from, to: to})
		})
	})
	return rows
}

// rowKeyText returns the key of a row in nft syntax, of the one or two elements that it is written as.
func rowKeyText(s *Set, elements []byte) string {
	var key, end Tuple
	attrs(elements, func(_ uint16, value []byte) {
		switch e := parseElement(value); {
		case e.intervalEnd:
			end = e.key.previous(s.Key.size)
		default:
			key, end = e.key, e.keyEnd
		}
	})
	if s.splitRanges() && end.IsZero() { // up to the largest value
		end = Tuple{n: key.n}.previous(s.Key.size)
	}
	return s.Key.rangeText(key, end)
}
