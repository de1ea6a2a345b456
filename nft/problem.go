package nft

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

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
