package keep

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// failure is what the error of a commit is about. Nothing was applied unless
// the outcome is unknown.
type failure uint8

const (
	// failureContent means that the kernel does not accept a row or chain.
	failureContent failure = iota
	// failureTransient means that the kernel lacked memory, or that
	// something was in use. That can also be permanent.
	failureTransient
	// failureConflict means that the kernel has other rows or chains than
	// were committed, where verification does not look.
	failureConflict
	// failureDamage means that verification found damage.
	failureDamage
	// failureForeign means that another program committed meanwhile.
	failureForeign
	// failurePermission means that this process may not change the table:
	// it lost its privileges, or the table belongs to another program (flag
	// owner).
	failurePermission
	// failureUnknown means that the kernel may have applied the
	// transaction.
	failureUnknown
)

// isOfMessage reports whether the kernel refused a message, or had no memory.
func (f failure) isOfMessage() bool { return f <= failureConflict }

// failureOf returns what the error of a commit is about. If the kernel refused
// several messages, the first decides: the others can be a consequence.
func failureOf(err error) failure {
	var changed *Damage
	var refused *nft.CommitError
	switch {
	case errors.Is(err, nft.ErrUnknownOutcome):
		return failureUnknown
	case errors.Is(err, nft.ErrGeneration):
		return failureForeign
	case errors.As(err, &changed):
		return failureDamage
	case errors.Is(err, unix.EPERM):
		return failurePermission
	case errors.As(err, &refused):
		p := refused.Problems[0]
		if p.Op == "delete ct timeout" && p.Errno == unix.EBUSY {
			return failureConflict // a rule of another program in the table refers to it
		}
		return failureOfErrno(p.Errno)
	}
	return failureTransient // the kernel received nothing
}

// For example, ENOMEM for a message of one owner is transient. An update holds
// the owner back and commits the others (fate.after). After the third failure,
// everything is written, and if the owner fails there, too, it is refused.
// ENOMEM that refers to no owner fails the sync. The third in a row causes a
// rewrite, unless the owners of a heavy part can be held back (attempt.next).

// failureOfErrno returns what the refusal of a message is about. Before Linux
// 6.2, EBUSY can mean that the kernel still counts deleted references. Linux
// 5.10 also returns it for a row with the key of another one. A rule of another
// program in the table can cause a loop. See nfnetlink.ErrLost for the other
// meanings of ENOBUFS.
func failureOfErrno(errno unix.Errno) failure {
	switch errno {
	case unix.ENOMEM, unix.ENOBUFS, unix.EINTR, unix.EAGAIN, unix.EBUSY:
		return failureTransient
	case unix.ENOENT, unix.EEXIST, unix.ELOOP, unix.EMLINK:
		return failureConflict
	}
	return failureContent
}

// isUntagged reports whether the kernel refused a transaction, and the error
// refers to none of its messages.
func isUntagged(err error) bool {
	var refused *nft.CommitError
	return errors.As(err, &refused) && refused.Problems[0].Object == "" && refused.Problems[0].Tag == 0
}

// namesMessage reports whether the kernel refused a message, rather than the
// whole transaction.
func namesMessage(err error) bool {
	var refused *nft.CommitError
	return errors.As(err, &refused) && refused.Problems[0].Object != ""
}
