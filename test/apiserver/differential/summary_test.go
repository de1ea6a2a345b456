package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/random"
)

// summary counts what was compared.
type summary struct {
	seeds, steps, changes, differences int

	probes map[string]int // by kind
	known  map[string]int // known differences by reason
}

func newSummary() *summary { return &summary{probes: map[string]int{}, known: map[string]int{}} }

// add adds a step.
func (s *summary) add(changes []string, probes []probe) {
	s.steps++
	s.changes += len(changes)
	for _, p := range probes {
		s.probes[string(p.Kind)]++
	}
}

// unknown counts differences and returns those without a known reason, by app.
func (s *summary) unknown(found []difference) map[*random.App][]difference {
	unknown := map[*random.App][]difference{}
	for _, d := range found {
		if reason := d.knownReason(); d.isKnown() {
			s.known[reason]++
			continue
		}
		s.differences++
		unknown[d.app] = append(unknown[d.app], d)
	}
	return unknown
}

// count returns the sum of counters.
func (s *summary) count(counters map[string]int) (sum int) {
	for _, n := range counters {
		sum += n
	}
	return sum
}

func (s *summary) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d seeds, %d steps, %d changes, %d probes, %d differences, %d known ones\n",
		s.seeds, s.steps, s.changes, s.count(s.probes), s.differences, s.count(s.known))
	for _, name := range slices.Sorted(maps.Keys(s.probes)) {
		fmt.Fprintf(&text, "%7d %s\n", s.probes[name], name)
	}
	for _, reason := range slices.Sorted(maps.Keys(s.known)) {
		if objects, _, _ := strings.Cut(reason, ";"); labtest.Subject() != "" {
			fmt.Fprintf(&text, "%7d not judged: %s\n", s.known[reason], objects)
			continue
		}
		fmt.Fprintf(&text, "%7d known difference: %s\n", s.known[reason], reason)
	}
	return text.String()
}
