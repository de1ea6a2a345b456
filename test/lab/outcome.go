package lab

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Outcome says how one attempt to reach a server ended.
type Outcome int

// The outcomes.
const (
	// Failed: the attempt itself went wrong (a source port in use, an answer that
	// is none, a connection reset after it was made); the Result's Err tells how.
	Failed Outcome = iota
	// Answered: a server of the lab answered.
	Answered
	// Refused: a TCP reset or an ICMP port unreachable came back.
	Refused
	// TimedOut: nothing came back.
	TimedOut
	// Unreachable: there is no route, or another ICMP unreachable came back.
	Unreachable
)

// String returns the outcome's name in lower case.
func (o Outcome) String() string {
	switch o {
	case Failed:
		return "failed"
	case Answered:
		return "answered"
	case Refused:
		return "refused"
	case TimedOut:
		return "timed out"
	case Unreachable:
		return "unreachable"
	}
	return fmt.Sprintf("outcome %d", int(o))
}

// outcomeOf classifies the error of a socket.
func outcomeOf(err error) Outcome {
	var timeout net.Error
	switch {
	case err == nil:
		return Answered
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EACCES):
		return Unreachable
	case errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut
	}
	return Failed
}

// Result is how an attempt ended.
type Result struct {
	Outcome Outcome
	// Answer is the server's, when Outcome is Answered.
	Answer Answer
	// Err is the socket's error, when Outcome is not Answered.
	Err error
}

// String tells the outcome and the answer or the error.
func (r Result) String() string {
	if r.Outcome == Answered {
		return fmt.Sprintf("answered by %s", r.Answer)
	}
	return fmt.Sprintf("%s (%v)", r.Outcome, r.Err)
}

func resultOf(answer Answer, err error) Result {
	if err != nil {
		answer = Answer{}
	}
	return Result{Outcome: outcomeOf(err), Answer: answer, Err: err}
}
