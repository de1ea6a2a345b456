package explain

import (
	"math/big"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
)

// Step is a rule that a packet reached.
type Step struct {
	Chain string `json:"chain"`
	// Rule is the rule in nft syntax.
	Rule string `json:"rule"`
	// Matched is the probability that the packet matches all of the rule.
	Matched *big.Rat `json:"matched"`
	// Lookups are the keys that the rule looked up, and the rows it found.
	Lookups []Lookup `json:"lookups,omitempty"`
}

// Lookup is a key that a rule looked up in a set or map.
type Lookup struct {
	Set string `json:"set"`
	Key string `json:"key"`
	// Row is the row in nft syntax, "" if the set has none.
	Row string `json:"row,omitempty"`
}

// stepsOf returns the steps of a walk through a table of a family.
func stepsOf(f nft.Family, w *walk.Walk) (steps []*Step) {
	for _, s := range w.Steps {
		step := &Step{Chain: s.Chain, Rule: s.Rule.Text(f), Matched: s.Matched}
		for _, l := range s.Lookups {
			lookup := Lookup{Set: l.Key.Set.Name, Key: l.Key.KeyText()}
			if l.Found.Set != nil {
				lookup.Row = l.Found.Text()
			}
			step.Lookups = append(step.Lookups, lookup)
		}
		steps = append(steps, step)
	}
	return steps
}
