package tour

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab"
)

// want is how all attempts of a call should end.
type want struct {
	// outcome of each attempt.
	outcome lab.Outcome
	// servers must all have answered, and nobody else; if sticky is set only one of them, every time.
	servers []string
	sticky  bool
	// source is the host whose address the servers must see.
	source string
}

// spreadOver wants answers of all these servers, who see the address of the host source.
func spreadOver(servers []string, source string) want {
	return want{outcome: lab.Answered, servers: servers, source: source}
}

// alwaysOneOf wants answers of a single one of these servers.
func alwaysOneOf(servers []string, source string) want {
	return want{outcome: lab.Answered, servers: servers, sticky: true, source: source}
}

// noAnswer wants every attempt to end in that way.
func noAnswer(outcome lab.Outcome) want { return want{outcome: outcome} }

// String tells what is wanted.
func (w want) String() string {
	switch {
	case w.outcome != lab.Answered:
		return w.outcome.String()
	case w.sticky:
		return fmt.Sprintf("always the same of %s, seen as %s", strings.Join(w.servers, ", "), w.source)
	}
	return fmt.Sprintf("answers of %s, seen as %s", strings.Join(w.servers, ", "), w.source)
}

// check compares. The names of the hosts come from hostOf.
func (w want) check(got tally, hostOf func(netip.Addr) string) error {
	if !w.isMet(got) {
		return fmt.Errorf("want %s, got %s", w, got.String())
	}
	for source := range got.sources {
		if host := hostOf(source); host != w.source {
			return fmt.Errorf("want the servers to see %s, they saw %s (%s)", w.source, host, source)
		}
	}
	return nil
}

// isMet compares who answered.
func (w want) isMet(got tally) bool {
	if w.outcome != lab.Answered {
		return len(got.answers) == 0 && len(got.others) == 1 && got.others[w.outcome] > 0
	}
	answered := slices.Sorted(maps.Keys(got.answers))
	if len(got.others) > 0 {
		return false
	}
	if w.sticky {
		return len(answered) == 1 && slices.Contains(w.servers, answered[0])
	}
	return slices.Equal(answered, slices.Sorted(slices.Values(w.servers)))
}
