package walk

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// Path is one way of the packet through the rules.
type Path struct {
	// Packet is the packet as the rules changed it. Its destination is the
	// original one (see End.To).
	Packet Packet
	// Share is the probability of the path. Paths that depend on Unknown share
	// no probability.
	Share *big.Rat
	// Unknown is the first fact on which the path depends and that is not
	// known, with its rule. It is nil if the path depends on chance at most.
	Unknown error
	// End is how the path ended in the last Run.
	End End

	// Rows are the rows that rules found, in their order.
	Rows []nft.Row
	// Updated are the names of the sets to which rules added the packet.
	Updated []string
	// Marked is the last rule that set a bit of the mark.
	Marked *Step
	// Untracked is the rule that excluded the packet from connection tracking.
	Untracked *Step
	// Counter is the name of the last named counter that counted the packet.
	Counter string

	registers
	at      position
	callers []position // to which `return` goes
	step    *Step      // at
}

// NewPath returns the path of a packet that has reached no rule yet.
func NewPath(p Packet) *Path { return &Path{Packet: p, Share: big.NewRat(1, 1)} }

// End is the end of a path through a base chain.
type End struct {
	Action Action
	// By is the rule that ended the path. It is nil if the packet reached the
	// end of the base chain, whose policy applies.
	By *Step
	// To is the endpoint if By translates the destination.
	To netip.AddrPort
}

// Action is the fate of a packet.
type Action uint8

// Actions.
const (
	undecided Action = iota
	Accepted         // by a rule, or at the end of the base chain
	Rejected
	Dropped
	Queued // a program decides, see nft.Rule.Queues
)

// position is an expression of a rule of a chain.
type position struct {
	chain            string
	rule, expression int
}

// fork returns a copy of the path.
func (p *Path) fork() *Path {
	fork := *p
	fork.callers, fork.Rows, fork.Updated = slices.Clone(p.callers), slices.Clone(p.Rows), slices.Clone(p.Updated)
	return &fork
}

// doubt records that the path depends on a fact that is not known.
func (p *Path) doubt(reason error) {
	if p.Unknown == nil {
		p.Unknown = fmt.Errorf("chain %s: rule %d: %w", p.at.chain, p.at.rule+1, reason)
	}
}

// enter starts or continues the path at the first rule of a chain.
func (p *Path) enter(chain string) { p.at = position{chain: chain} }

// next continues with the next expression of the rule.
func (p *Path) next() { p.at.expression++ }

// nextRule continues with the next rule of the chain.
func (p *Path) nextRule() { p.at = position{chain: p.at.chain, rule: p.at.rule + 1} }

// back continues after the rule that jumped to the chain. At the end of a base
// chain the packet is accepted.
func (p *Path) back() {
	if len(p.callers) == 0 {
		p.End = End{Action: Accepted}
		return
	}
	p.at = p.callers[len(p.callers)-1]
	p.callers = p.callers[:len(p.callers)-1]
	p.nextRule()
}

// finish ends the path with a rule that matches.
func (p *Path) finish(a Action) {
	p.matched()
	p.End = End{Action: a, By: p.step}
}

// matched adds the path to the paths that match the rule.
func (p *Path) matched() { p.step.Matched.Add(p.step.Matched, p.Share) }

// state is the state of a path at the beginning of a rule. Two paths in the
// same state have the same future.
type state struct {
	at          position
	callers     string
	mark        uint32
	markUnknown bool
	untracked   bool

	priority        uint32
	priorityUnknown bool
}

func (p *Path) state() state {
	var callers []byte
	for _, c := range p.callers {
		callers = binary.BigEndian.AppendUint32(append(append(callers, c.chain...), 0), uint32(c.rule))
	}
	return state{
		p.at, string(callers), p.Packet.Mark, p.Packet.MarkUnknown, p.Packet.Untracked, p.Packet.Priority,
		p.Packet.PriorityUnknown,
	}
}

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
