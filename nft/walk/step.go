package walk

import (
	"math/big"

	"github.com/nftproxy/nftproxy/nft"
)

// Step is a rule that a packet reached.
type Step struct {
	Chain string
	// Index is the position of the rule in its chain, from 0.
	Index int
	Rule  nft.Rule
	// Matched is the probability that the packet matches all of the rule. It
	// means nothing if paths depend on unknown facts.
	Matched *big.Rat
	// Lookups are the keys that the rule looked up, and the rows it found.
	Lookups []Lookup

	known map[Lookup]struct{} // Lookups
}

// Lookup is a key that a rule looked up in a set or map.
type Lookup struct {
	// Key is a row with the key and without data.
	Key nft.Row
	// Found is the row. Its Set is nil if the set has none.
	Found nft.Row
}

// visit returns the step of a rule. It adds the step to the walk unless another
// path reached the rule before.
func (w *Walk) visit(at position, rule *nft.Rule) *Step {
	step := w.visited[at]
	if step == nil {
		step = &Step{Chain: at.chain, Index: at.rule, Rule: *rule, Matched: new(big.Rat),
			known: make(map[Lookup]struct{})}
		w.visited[at] = step
		w.Steps = append(w.Steps, step)
	}
	return step
}

// add adds a lookup to the step, unless it has the same one.
func (s *Step) add(l Lookup) {
	if _, ok := s.known[l]; !ok {
		s.known[l] = struct{}{}
		s.Lookups = append(s.Lookups, l)
	}
}
