package explain

import (
	"math/big"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
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

// walk is the rules that the paths of a packet reached, in their order.
type walk struct {
	steps []*Step
	byPos map[position]*Step
	known map[stepLookup]struct{} // the lookups of all steps
}

// stepLookup is a lookup of a step.
type stepLookup struct {
	*Step
	Lookup
}

func newWalk() walk {
	return walk{byPos: make(map[position]*Step), known: make(map[stepLookup]struct{})}
}

// rulePosition returns the position of the rule at which a path is.
func (p *path) rulePosition() position { return position{chain: p.at.chain, rule: p.at.rule} }

func (w *walk) visited(p *path) bool { return w.byPos[p.rulePosition()] != nil }

func (w *walk) visit(p *path, rule string) {
	step := &Step{Chain: p.at.chain, Rule: rule, Matched: new(big.Rat)}
	w.byPos[p.rulePosition()] = step
	w.steps = append(w.steps, step)
}

// matched adds the probability of a path that matches the whole rule.
func (w *walk) matched(p *path) {
	step := w.byPos[p.rulePosition()]
	step.Matched.Add(step.Matched, p.share)
}

// lookup adds a lookup to the rule at which a path is.
func (w *walk) lookup(p *path, key, row nft.Row) {
	l := Lookup{Set: key.Set.Name, Key: keyText(key)}
	if row.Set != nil {
		l.Row = rowText(row)
	}
	step := w.byPos[p.rulePosition()]
	if _, known := w.known[stepLookup{step, l}]; known {
		return
	}
	w.known[stepLookup{step, l}] = struct{}{}
	step.Lookups = append(step.Lookups, l)
}

// rowText returns a row in nft syntax, without the name of its set.
func rowText(r nft.Row) string { return strings.TrimPrefix(r.String(), r.Set.Name+" ") }

// keyText returns the key of a row without data.
func keyText(r nft.Row) string {
	key, _, _ := strings.Cut(rowText(r), " : ")
	return key
}
