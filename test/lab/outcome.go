package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// Outcome is the outcome of an attempt to reach a server.
type Outcome int

// The outcomes.
const (
	// Failed is any other error: a source port in use, an invalid answer, a
	// connection reset after it was established. See Result.Err.
	Failed Outcome = iota
	// Answered is the answer of a server of the lab.
	Answered
	// Refused is a TCP reset or an ICMP port unreachable.
	Refused
	// TimedOut means that no answer came.
	TimedOut
	// Unreachable is a missing route or another ICMP unreachable.
	Unreachable
)

// String returns the outcome's name in lower case.
func (o Outcome) String() string {
	return [...]string{"failed", "answered", "refused", "timed out", "unreachable"}[o]
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

// Result is the result of an attempt.
type Result struct {
	Outcome Outcome
	// Answer is the server's answer if Outcome is Answered.
	Answer Answer
	// Err is the socket's error if Outcome is not Answered.
	Err error
}

func resultOf(answer Answer, err error) Result {
	if err != nil {
		answer = Answer{}
	}
	return Result{Outcome: outcomeOf(err), Answer: answer, Err: err}
}

// String returns the outcome with the answer or the error.
func (r Result) String() string {
	if r.Outcome == Answered {
		return fmt.Sprintf("answered by %s", r.Answer)
	}
	return fmt.Sprintf("%s (%v)", r.Outcome, r.Err)
}

// Answer is the answer of a server of the lab, the line "pod-a
// 10.244.1.1:41234".
type Answer struct {
	// Server is the name of the server's namespace.
	Server string
	// Source is the client's address and port as the server sees them.
	Source netip.AddrPort
}

// String returns the line, without its end.
func (a Answer) String() string { return a.Server + " " + a.Source.String() }

// line returns the answer as servers send it.
func (a Answer) line() []byte { return []byte(a.String() + "\n") }

func parseAnswer(line string) (Answer, error) {
	server, source, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if !found {
		return Answer{}, fmt.Errorf("answer %q: want a name and an address", line)
	}
	addr, err := netip.ParseAddrPort(source)
	if err != nil {
		return Answer{}, fmt.Errorf("answer %q: %w", line, err)
	}
	return Answer{Server: server, Source: addr}, nil
}
