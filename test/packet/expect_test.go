package packet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab"
)

// expectation is the expected outcome of attempts to reach a Service:
//
//	FROM... -> TO... => SERVER... as SOURCE, SERVER... as SOURCE
//	FROM... -> TO... => refused
//	FROM... -> TO... => dropped
//	FROM... -> TO... => lost
//
// FROM is the name of an origin, TO a frontend (see cluster.destination).
// SERVERs are the endpoints that may answer; each must answer at least once.
// SOURCE is the origin whose address they see, or "itself" for the origin of
// the attempt. A lost packet is translated, but the client gets no answer.
type expectation struct {
	line     string
	from, to []string
	want     want
}

// want is the expected outcome of attempts.
type want struct {
	// outcome is lab.Answered, lab.Refused or lab.TimedOut.
	outcome lab.Outcome
	// sources has the origin whose address a server sees, by server.
	sources map[string]string
	// lost means that the client gets no answer, although rules do not drop
	// the packet.
	lost bool
}

// parseExpectations parses lines. A # begins a comment.
func parseExpectations(text string) ([]expectation, error) {
	var all []expectation
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		e, err := parseExpectation(line)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		all = append(all, e)
	}
	return all, nil
}

func parseExpectation(line string) (expectation, error) {
	path, outcome, hasOutcome := strings.Cut(line, "=>")
	from, to, hasTo := strings.Cut(path, "->")
	e := expectation{line: line, from: strings.Fields(from), to: strings.Fields(to)}
	if !hasOutcome || !hasTo || len(e.from) == 0 || len(e.to) == 0 {
		return e, fmt.Errorf("want FROM... -> TO... => OUTCOME")
	}
	var err error
	e.want, err = parseWant(strings.TrimSpace(outcome))
	return e, err
}

func parseWant(text string) (want, error) {
	switch text {
	case "refused":
		return want{outcome: lab.Refused}, nil
	case "dropped":
		return want{outcome: lab.TimedOut}, nil
	case "lost":
		return want{outcome: lab.TimedOut, lost: true}, nil
	}
	w := want{outcome: lab.Answered, sources: make(map[string]string)}
	for _, group := range strings.Split(text, ",") {
		words := strings.Fields(group)
		as := slices.Index(words, "as")
		if as < 1 || as != len(words)-2 {
			return w, fmt.Errorf("%q: want SERVER... as SOURCE, refused, dropped or lost", group)
		}
		for _, server := range words[:as] {
			w.sources[server] = words[as+1]
		}
	}
	return w, nil
}
