package nft

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// ErrUnknownOutcome is returned when the answer of the kernel to a commit was
// lost. The transaction may have been applied or not.
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

// Unwrap returns the error numbers of the problems.
func (e *CommitError) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p.Errno
	}
	return errs
}

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
			if errors.Is(err, unix.ENOBUFS) {
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
