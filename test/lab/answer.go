package lab

import (
	"fmt"
	"net/netip"
	"strings"
)

// Answer is the line by which a server of the lab tells who it is and whom it
// sees: "pod-a 10.244.1.1:41234".
type Answer struct {
	// Server is the name of the server's namespace.
	Server string
	// Source is the client's address and port as they arrived.
	Source netip.AddrPort
}

// String returns the line, without its end.
func (a Answer) String() string { return a.Server + " " + a.Source.String() }

// line is what goes over the wire.
func (a Answer) line() []byte { return []byte(a.String() + "\n") }

func parseAnswer(line string) (Answer, error) {
	server, source, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if !found {
		return Answer{}, fmt.Errorf("answer %q: no server of a lab", line)
	}
	addr, err := netip.ParseAddrPort(source)
	if err != nil {
		return Answer{}, fmt.Errorf("answer %q: %w", line, err)
	}
	return Answer{Server: server, Source: addr}, nil
}
