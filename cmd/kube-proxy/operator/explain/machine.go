package explain

import (
	"fmt"
	"math/big"

	"github.com/nftproxy/nftproxy/nft"
)

// machine runs the rules of a table for paths of a packet, as the kernel does.
type machine struct {
	table  Table
	routes Routes
	// iif returns the name of the interface on which the packet arrives.
	iif    func() (string, error)
	chains map[string][]nft.Rule
	sets   map[string]*nft.Set
	walk   walk
	// other is nil for the table of the proxy, whose rules are known.
	other *otherRules
	// waiting are paths that forked and have not ended, the next one last.
	waiting []*path
}

// maxSteps limits the number of expressions of a walk. The kernel accepts no
// loops, but a table can change between two reads.
const maxSteps = 1 << 20

// run runs a path from the beginning of a base chain and returns the paths that
// it becomes, with their endings.
func (m *machine) run(p *path, base string) (ended []*path, err error) {
	p.enter(base)
	p.callers, p.registers, p.end = nil, registers{}, ending{}
	m.waiting = append(m.waiting[:0], p)
	for steps := 0; len(m.waiting) > 0; steps++ {
		p := m.waiting[len(m.waiting)-1]
		if p.end.action != undecided {
			m.waiting = m.waiting[:len(m.waiting)-1]
			ended = append(ended, p)
			continue
		}
		if steps == maxSteps {
			return nil, fmt.Errorf("chain %s: the walk does not end", p.at.chain)
		}
		if err := m.step(p); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// step runs one expression of a path.
func (m *machine) step(p *path) error {
	rules, err := m.rules(p.at.chain)
	if err != nil {
		return err
	}
	if p.at.rule == len(rules) {
		p.back()
		return nil
	}
	rule := rules[p.at.rule]
	if p.at.expression == 0 {
		if m.other != nil && m.other.merge(p) {
			return nil
		}
		m.visit(p, rule)
	}
	if p.at.expression == len(rule.Expressions) {
		m.walk.matched(p)
		p.nextRule()
		return nil
	}
	now := p.at
	if err := m.evaluate(p, rule.Expressions[now.expression], place{now.chain, rule.Comment}); err != nil {
		return fmt.Errorf("chain %s: rule %d: %w", now.chain, now.rule+1, err)
	}
	return nil
}

// visit adds the rule at which a path is to the walk.
func (m *machine) visit(p *path, rule nft.Rule) {
	if !m.walk.visited(p) {
		m.walk.visit(p, rule.Text(p.packet.family))
	}
}

// next continues a path with the next expression of the rule.
func (p *path) next() { p.at.expression++ }

// split continues a path with the next expression if the rule matches, and the
// rest of its probability with the next rule.
func (m *machine) split(p *path, matching *big.Rat) {
	rest := p.fork(new(big.Rat).Sub(big.NewRat(1, 1), matching))
	rest.nextRule()
	p.share = new(big.Rat).Mul(p.share, matching)
	p.next()
	m.waiting[len(m.waiting)-1] = rest
	m.waiting = append(m.waiting, p)
}

// draw replaces a path by one for each value of a random number in its
// registers.
func (m *machine) draw(p *path, slot int, n drawn) {
	m.waiting = m.waiting[:len(m.waiting)-1]
	for i := n.mod; i > 0; i-- { // the first one last, so that it is next
		fork := p.fork(big.NewRat(1, int64(n.mod)))
		copy(fork.data[slot*slotBytes:], hostBytes(n.offset+i-1))
		fork.random[slot] = drawn{}
		m.waiting = append(m.waiting, fork)
	}
}

func (m *machine) rules(chain string) ([]nft.Rule, error) {
	if rules, ok := m.chains[chain]; ok {
		return rules, nil
	}
	rules, err := m.table.Rules(chain)
	if err == nil {
		m.chains[chain] = rules
	}
	return rules, err
}

func (m *machine) set(name string) (*nft.Set, error) {
	if set, ok := m.sets[name]; ok {
		return set, nil
	}
	set, err := m.table.Set(name)
	if err == nil {
		m.sets[name] = set
	}
	return set, err
}
