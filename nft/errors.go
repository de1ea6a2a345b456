package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnknownOutcome says that the kernel's answer to a commit was lost: the transaction may have been carried out or not.
var ErrUnknownOutcome = errors.New("outcome of the transaction is unknown")

// ErrGeneration says that the ruleset of the host is not of the generation that Batch.Expect asked for: somebody else
// changed it. The transaction was not carried out.
var ErrGeneration = errors.New("ruleset was changed by another program")

// CommitError says why the kernel refused a transaction. Nothing of the transaction was carried out. It unwraps to the
// error numbers of its problems.
type CommitError struct {
	// Table names the table: `table ip kube-proxy`.
	Table string
	// Problems are all that the kernel complained about, at least one.
	Problems []Problem
}

// Problem is one complaint of the kernel about a transaction.
type Problem struct {
	// Op says what was refused: "add element", "add rule", ... or "commit" for the transaction as a whole.
	Op string
	// Object names on what: a set and a key, a chain.
	Object string
	// Tag is what Batch.Tag said about it; 0 if that cannot be known.
	Tag uint32
	// Errno is the kernel's error number.
	Errno unix.Errno
	// Message is the kernel's own explanation (its extended ACK), if it gave one.
	Message string
}

func (p Problem) String() string {
	parts := []string{p.Op}
	if p.Object != "" {
		parts[0] += " " + p.Object
	}
	parts = append(parts, p.Errno.Error())
	if p.Message != "" {
		parts = append(parts, p.Message)
	}
	return strings.Join(parts, ": ")
}

func (e *CommitError) Error() string {
	s := fmt.Sprintf("commit %s: %s", e.Table, e.Problems[0])
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

// problem explains an error that the kernel reported about a message of the batch.
func (b *Batch) problem(r reply) Problem {
	p := Problem{Op: "commit", Errno: r.errno, Message: r.message}
	m, body, ok := b.messageOf(r.seq)
	if !ok {
		return p
	}
	p.Op, p.Object = m.op.String(), m.object
	p.Tag = b.tagIn(m.at, m.at+len(body))
	if m.set == nil {
		return p
	}
	p.Object = m.set.Name
	if from, to, row, ok := rowAt(m.set, body, int(r.offset)); ok {
		p.Object += " " + row
		p.Tag = b.tagIn(m.at+from, m.at+to)
	}
	return p
}

// rowAt finds the row of a message of rows in which offset lies, or the only row of the message, and returns its key in nft syntax.
func rowAt(s *Set, msg []byte, offset int) (from, to int, key string, ok bool) {
	rows := 0
	at := nlmsgHeaderLen + nfgenmsgLen
	eachAttr(msg, at, func(typ uint16, from1, to1 int) {
		if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		eachAttr(msg[:to1], from1+attrHeaderLen, func(_ uint16, from2, to2 int) {
			rows++
			if offset >= from2 && offset < to2 {
				from, to, ok = from2, to2, true
			} else if !ok {
				from, to = from2, to2
			}
		})
	})
	if !ok && rows != 1 {
		return 0, 0, "", false
	}
	return from, to, rowKeyText(s, msg[from+attrHeaderLen:to]), true
}

// eachAttr calls f with the type and the place of each attribute of msg from offset at on.
func eachAttr(msg []byte, at int, f func(typ uint16, from, to int)) {
	for at+attrHeaderLen <= len(msg) {
		n := int(binary.NativeEndian.Uint16(msg[at:]))
		if n < attrHeaderLen || at+n > len(msg) {
			return
		}
		f(binary.NativeEndian.Uint16(msg[at+2:])&^unix.NLA_F_NESTED, at, at+n)
		at += align4(n)
	}
}

func rowKeyText(s *Set, elem []byte) string {
	var key, end Tuple
	attrs(elem, func(typ uint16, data []byte) {
		attrs(data, func(_ uint16, value []byte) {
			switch typ {
			case unix.NFTA_SET_ELEM_KEY:
				key = Tuple{}.append(value)
			case nftaElemKeyEnd:
				end = Tuple{}.append(value)
			}
		})
	})
	return s.Key.rangeText(key, end)
}
