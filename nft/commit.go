package nft

import (
	"errors"
	"fmt"
	"strings"

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

// ErrUnknownOutcome is returned when the answer of the kernel to a commit was
// lost (see nfnetlink.ErrLost). The transaction may have been applied or not.
var ErrUnknownOutcome = errors.New("outcome of the transaction is unknown")

// ErrGeneration is returned when another program changed the ruleset. Commit
// returns it if the ruleset does not have the generation that the batch
// expects (see Batch.Expect); nothing was applied. Methods that read return it
// if the ruleset keeps changing.
var ErrGeneration = errors.New("ruleset was changed by another program")

// CommitError is returned for a transaction that was refused. Nothing of it
// was applied. It unwraps to the error numbers of its problems.
type CommitError struct {
	// Table is the table as nft writes it, such as `table ip kube-proxy`.
	Table string
	// Problems has at least one element.
	Problems []Problem
}

// Error returns the table, the first problem and the number of other
// problems.
func (e *CommitError) Error() string {
	s := "commit " + e.Table + ": " + strings.TrimPrefix(e.Problems[0].String(), opCommit+": ")
	if n := len(e.Problems) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// LacksOwners reports whether the kernel refused a transaction because it has
// no tables with an owner (before Linux 5.12).
func LacksOwners(err error) bool {
	e, ok := errors.AsType[*CommitError](err)
	return ok && e.Problems[0].Op == kindTable.addition && errors.Is(err, unix.EINVAL)
}

// Unwrap returns the error numbers of the problems.
func (e *CommitError) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p.Errno
	}
	return errs
}

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
	// refuses the change. ENOBUFS means that the kernel had no memory for the
	// change (see nfnetlink.ErrLost for its other meanings).
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
