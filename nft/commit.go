package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Commit applies the batch in one transaction. It sends nothing if the batch
// is empty. The error is
//
//   - a *CommitError if the batch or the kernel refused a change; nothing was
//     applied,
//   - ErrGeneration if another program changed the ruleset (see
//     Batch.Expect); nothing was applied,
//   - ErrUnknownOutcome if the answer of the kernel was lost,
//   - any other error if the transaction could not be sent; nothing was
//     applied. EMSGSIZE means that it exceeds the send buffer of the socket,
//     which net.core.wmem_max limits without CAP_NET_ADMIN in the initial
//     user namespace.
//
// Commit keeps the contents of the batch, so that it can be committed again.
func (c *Conn) Commit(b *Batch) error {
	if len(b.refused) > 0 {
		return &CommitError{Table: b.table.String(), Problems: append([]Problem(nil), b.refused...)}
	}
	if b.Empty() {
		return nil
	}
	return c.apply(b)
}

// apply sends a batch, which can be empty, and returns its outcome.
func (c *Conn) apply(b *Batch) error {
	b.start()
	data := b.finish()
	c.socket.Discard()
	if err := c.socket.Send(data); err != nil {
		return fmt.Errorf("commit %s: send %d bytes: %w", b.table, len(data), err)
	}
	return c.outcome(b)
}

// outcome reads the answer of the kernel to a batch. The kernel sends an
// error for each message that it refuses, or acknowledges the last message,
// if there is one. After any error nothing was applied, whatever other answers
// were lost.
func (c *Conn) outcome(b *Batch) error {
	refused := &CommitError{Table: b.table.String()}
	acknowledged := b.Empty()
	var lost error // the reason why answers may be missing
	for {
		msg, err := c.socket.Receive()
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			lost = err
			if errors.Is(err, nfnetlink.ErrLost) {
				continue
			}
			break
		}
		r, err := nfnetlink.ParseReply(msg)
		switch {
		case err != nil:
			lost = err
		case r.Errno == unix.ERESTART && r.Seq == beginSeq:
			return fmt.Errorf("commit %s: %w", b.table, ErrGeneration)
		case r.Errno != 0:
			refused.Problems = append(refused.Problems, b.problem(r))
		case r.Seq == b.lastSeq():
			acknowledged = true
		}
	}
	switch {
	case len(refused.Problems) > 0:
		return refused
	case lost != nil:
		return fmt.Errorf("commit %s: %w: %w", b.table, ErrUnknownOutcome, lost)
	case !acknowledged:
		return fmt.Errorf("commit %s: %w", b.table, ErrUnknownOutcome)
	}
	return nil
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
		p.Object += " " + m.set.Key.Text(row.key.b[:row.key.n])
		p.Tag = b.tagIn(m.at+row.from, m.at+row.to)
	}
	return p
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
