package nfnetlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrIncomplete is returned if the kernel did not send the end of an answer.
var ErrIncomplete = errors.New("incomplete answer from the kernel")

// ErrInterrupted is returned if what a dump lists changed so much that objects
// may be missing (NLM_F_DUMP_INTR). The messages are valid.
var ErrInterrupted = errors.New("the dump was interrupted")

// ErrLost is returned if messages from the kernel are missing: the receive
// buffer was full, or the kernel had no memory for an answer or for the next
// piece of a dump. It is ENOBUFS, which can have three other meanings.
// Where the error was returned decides:
//
//   - Socket.Receive returns ErrLost. Requests that were sent may have been
//     executed; only their answers are missing.
//   - Socket.Send returns ENOBUFS if the kernel had no memory for the datagram.
//     It received nothing.
//   - Reply.Errno is ENOBUFS if the kernel had no memory to execute a message,
//     and so refused it.
//   - Answer.Read returns ENOBUFS if the kernel had no memory to continue a
//     dump, and ended it. The messages before it are valid.
//
// All four are transient. After ErrLost the outcome of a request that changes
// something is unknown. After the next two the kernel did not execute it.
var ErrLost = fmt.Errorf("messages from the kernel were lost: %w", unix.ENOBUFS)
