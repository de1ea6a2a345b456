package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Problem is one refused change of a transaction. The kernel refuses it, or
// the batch does if it cannot encode the change.
type Problem struct {
	// Op is the refused operation, such as "add element" or "add rule", or
	// "commit" for the transaction as a whole.
	Op string
	// Object is the object of the operation in nft syntax: a set and a key, a
	// chain, or a chain and a rule.
	Object string
	// Tag is the tag that Batch.Tag set for the change, 0 if it is unknown.
	Tag uint32
	// Errno is the error number of the kernel. It is EINVAL if the batch
	// refuses the change.
	Errno unix.Errno
	// Message is the explanation of the kernel (extended ACK), if any, or of
	// the batch.
	Message string
}

// opCommit is the operation of problems with a transaction as a whole.
const opCommit = "commit"

// String returns the problem in the form
// `delete element services 10.96.0.10 . tcp . 80: no such file or directory`.
func (p Problem) String() string {
	s := p.Op
	if p.Object != "" {
		s += " " + p.Object
	}
	s += ": " + p.Errno.Error()
	if p.Message != "" {
		s += ": " + p.Message
	}
	switch p.Errno {
	case unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT:
		s += " (requires Linux 5.10 or later with nf_tables)"
	}
	return s
}

// problem returns the problem that the kernel reports about a message of the
// batch.
//
// The kernel identifies one of several rows by the offset of its attribute on
// Linux 6.1, 6.12 and 6.18, but not on 5.10. Without an offset the problem
// has no key, and has a tag only if all rows of the message share it (see
// Batch.Isolate).
func (b *Batch) problem(r nfnetlink.Reply) Problem {
	p := Problem{Op: opCommit, Errno: r.Errno, Message: r.Message}
	m, body, ok := b.messageOf(r.Seq)
	if !ok {
		return p
	}
	p.Op, p.Object = m.op, b.objectText(&m)
	p.Tag = b.tagIn(m.at, m.at+len(body))
	if m.set == nil {
		return p
	}
	if row, ok := rowAt(body, int(r.Offset)); ok {
		p.Object += " " + m.set.Key.text(row.key)
		p.Tag = b.tagIn(m.at+row.from, m.at+row.to)
	}
	return p
}

// refuse records a change that cannot be encoded. Commit then refuses the
// batch.
func (b *Batch) refuse(op string, object, reason string) {
	p := Problem{Op: op, Object: object, Errno: unix.EINVAL, Message: reason}
	if n := len(b.tags); n > 0 {
		p.Tag = b.tags[n-1].tag
	}
	b.refused = append(b.refused, p)
}

// messageOf returns the message with a sequence number, and its bytes.
func (b *Batch) messageOf(seq uint32) (m sentMessage, body []byte, ok bool) {
	i := int(seq) - beginSeq - 1
	if i < 0 || i >= len(b.messages) {
		return m, nil, false
	}
	m = b.messages[i]
	n := int(binary.NativeEndian.Uint32(b.w.Buf[m.at:])) // the header begins with the length
	return m, b.w.Buf[m.at : m.at+n], true
}

// sentRow is a row within a message of rows.
type sentRow struct {
	from, to int // offsets in the message
	key      Tuple
}

// rowAt returns the row that contains offset in a message of rows, or the
// only row of the message.
func rowAt(msg []byte, offset int) (row sentRow, ok bool) {
	rows := rowsIn(msg)
	for _, row = range rows {
		if len(rows) == 1 || (offset >= row.from && offset < row.to) {
			return row, true
		}
	}
	return sentRow{}, false
}

// rowsIn returns the positions of the rows in a message of rows.
func rowsIn(msg []byte) []sentRow {
	var rows []sentRow
	nfnetlink.EachAttrAt(msg, nfnetlink.HeaderLen, func(typ uint16, from, to int) {
		if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		nfnetlink.EachAttrAt(msg[:to], from+nfnetlink.AttrHeaderLen, func(_ uint16, from, to int) {
			key := attr(msg[from+nfnetlink.AttrHeaderLen:to], unix.NFTA_SET_ELEM_KEY)
			rows = append(rows, sentRow{from, to, parseTuple(key)})
		})
	})
	return rows
}
