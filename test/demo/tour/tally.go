package tour

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab"
)

// tally is how the attempts of one call ended.
type tally struct {
	// answers counts the answers by server.
	answers map[string]int
	// sources are the addresses that servers saw.
	sources map[netip.Addr]int
	// others counts the outcomes that are no answer.
	others map[lab.Outcome]int
}

func newTally() tally {
	return tally{answers: map[string]int{}, sources: map[netip.Addr]int{}, others: map[lab.Outcome]int{}}
}

// add counts one attempt.
func (t *tally) add(r lab.Result) {
	if r.Outcome != lab.Answered {
		t.others[r.Outcome]++
		return
	}
	t.answers[r.Answer.Server]++
	t.sources[r.Answer.Source.Addr()]++
}

// String tells the counts: "web-1 3, web-2 5, refused 1".
func (t *tally) String() string {
	var parts []string
	for _, server := range slices.Sorted(maps.Keys(t.answers)) {
		parts = append(parts, fmt.Sprintf("%s %d", server, t.answers[server]))
	}
	for _, outcome := range slices.Sorted(maps.Keys(t.others)) {
		parts = append(parts, fmt.Sprintf("%s %d", outcome, t.others[outcome]))
	}
	return strings.Join(parts, ", ")
}

// spread writes the counts under the names of the servers, or all counts where others than these are among them.
func (t *tally) spread(servers []string) string {
	foreign := func(server string) bool { return !slices.Contains(servers, server) }
	if len(t.others) > 0 || slices.ContainsFunc(slices.Collect(maps.Keys(t.answers)), foreign) {
		return t.String()
	}
	var counts []string
	for _, server := range servers {
		counts = append(counts, fmt.Sprintf("%*d", len(server), t.answers[server]))
	}
	return strings.Join(counts, " ")
}
