package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Commit carries out the batch in one transaction. An empty batch sends nothing. The error is
//
//   - a *CommitError if the transaction was refused, by the kernel or before it was sent; nothing was carried out,
//   - ErrGeneration if somebody else changed the ruleset (Batch.Expect); nothing was carried out,
//   - ErrUnknownOutcome if the kernel's answer was lost,
//   - any other if the transaction could not be sent; nothing was carried out. EMSGSIZE says that it is larger than the socket's
//     send buffer, which without CAP_NET_ADMIN in the initial user namespace can't be beyond net.core.wmem_max.
//
// The batch stays as it is, so that it can be committed again.
func (c *Conn) Commit(b *Batch) error {
	if len(b.refused) > 0 {
		return &CommitError{Table: b.table.String(), Problems: append([]Problem(nil), b.refused...)}
	}
	if b.Empty() {
		return nil
	}
	data := b.finish()
	c.discard()
	if err := c.send(data); err != nil {
		return fmt.Errorf("commit %s: send %d bytes: %w", b.table, len(data), err)
	}
	return c.outcome(b)
}

// outcome reads the kernel's answers to a batch. What it refuses it says of every message that it can; what it carries out it
// acknowledges once, for the last message. An error of any message means that nothing was carried out, whatever else was lost.
func (c *Conn) outcome(b *Batch) error {
	refused := &CommitError{Table: b.table.String()}
	acknowledged := false
	var lost error // why answers may be missing
	for {
		msg, err := c.receive()
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
		r, err := parseReply(msg)
		switch {
		case err != nil:
			lost = err
		case r.errno == unix.ERESTART && r.seq == beginSeq:
			return fmt.Errorf("commit %s: %w", b.table, ErrGeneration)
		case r.errno != 0:
			refused.Problems = append(refused.Problems, b.problem(r))
		case r.seq == b.lastSeq():
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
