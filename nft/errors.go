package nft

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnknownOutcome says that the kernel's answer to a commit was lost: the transaction may have been carried out or not.
var ErrUnknownOutcome = errors.New("outcome of the transaction is unknown")

// ErrGeneration says that somebody else changed the ruleset of the host: it is not of the generation that Batch.Expect asked
// for, and the transaction was not carried out; or it changed while it was being read.
var ErrGeneration = errors.New("ruleset was changed by another program")

// CommitError says why a transaction was refused. Nothing of the transaction was carried out. It unwraps to the error numbers of its problems.
type CommitError struct {
	// Table names the table: `table ip kube-proxy`.
	Table string
	// Problems are all that the kernel complained about, at least one.
	Problems []Problem
}

// Problem is one complaint of the kernel about a transaction, or one of the batch itself about what it cannot put into netlink
// messages, such as a row whose key has other fields than its set.
type Problem struct {
	// Op says what was refused: "add element", "add rule", ... or "commit" for the transaction as a whole.
	Op string
	// Object names on what, in nft syntax: a set and a key, a chain, a chain and a rule.
	Object string
	// Tag is what Batch.Tag said about it; 0 if that cannot be known.
	Tag uint32
	// Errno is the kernel's error number; EINVAL if the batch itself complains.
	Errno unix.Errno
	// Message is the explanation of the kernel (its extended ACK), if it gave one, or of the batch.
	Message string
}

// String returns the problem as in `delete element services 10.96.0.10 . tcp . 80: no such file or directory`.
func (p Problem) String() string {
	s := p.Op
	if p.Object != "" {
		s += " " + p.Object
	}
	s += ": " + p.Errno.Error()
	if p.Message != "" {
		s += ": " + p.Message
	}
	return s
}

// Error names the table and the first problem, and says how many more there are.
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

// opCommit is the operation of problems with a transaction as a whole.
const opCommit = "commit"
