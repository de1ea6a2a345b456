package packet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab"
)

// expectation is one line of what a scenario expects:
//
//	FROM... -> TO... => SERVER... as SOURCE, SERVER... as SOURCE
//	FROM... -> TO... => refused
//	FROM... -> TO... => dropped
//
// FROM is the name of an origin, TO a frontend (see cluster.destination). SERVERs are the endpoints that may
// answer, all of which must be seen. SOURCE is the address that they see: an origin's name, or "itself" for
// that of the attempt's own origin.
type expectation struct {
	line     string
	from, to []string
	want     want
}

// want is what must become of attempts.
type want struct {
	// outcome is lab.Answered, lab.Refused or lab.TimedOut.
	outcome lab.Outcome
	// sources are the origins whose addresses the servers see, by server.
	sources map[string]string
}

// parseExpectations reads lines. Empty ones, and what follows a #, do not count.
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
	path, outcome, arrived := strings.Cut(line, "=>")
	from, to, goes := strings.Cut(path, "->")
	e := expectation{line: line, from: strings.Fields(from), to: strings.Fields(to)}
	if !arrived || !goes || len(e.from) == 0 || len(e.to) == 0 {
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
	}
	w := want{outcome: lab.Answered, sources: make(map[string]string)}
	for _, group := range strings.Split(text, ",") {
		words := strings.Fields(group)
		as := slices.Index(words, "as")
		if as < 1 || as != len(words)-2 {
			return w, fmt.Errorf("%q: want SERVER... as SOURCE, refused or dropped", group)
		}
		for _, server := range words[:as] {
			w.sources[server] = words[as+1]
		}
	}
	return w, nil
}
