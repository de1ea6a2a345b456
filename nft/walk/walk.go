package walk

import (
	"fmt"
	"math/big"
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
)

// Table is the content of a table.
type Table interface {
	// Rules returns the rules of a chain.
	Rules(chain string) ([]nft.Rule, error)
	// Set returns the description of a set.
	Set(name string) (*nft.Set, error)
	// Row returns the row of a set that a packet with this key finds. Its Set
	// is nil if there is none.
	Row(set *nft.Set, key nft.Tuple) (nft.Row, error)
}

// Host is the machine on which the packet is. An error means that a fact is not
// known.
type Host interface {
	// RouteType returns the type of the route to an address (RTN_LOCAL for the
	// addresses of this machine).
	RouteType(addr netip.Addr) (uint32, error)
	// Interface returns the name of the interface of the route to an address.
	Interface(addr netip.Addr) (string, error)
	// InterfaceIndex returns the number of an interface.
	InterfaceIndex(name string) (uint32, error)
}

// Walk is the walk of a packet through the rules of a table, on all paths.
type Walk struct {
	// Steps are the rules that the packet reached, in their order.
	Steps []*Step

	table   Table
	host    Host
	visited map[position]*Step
	seen    map[state]bool // of paths that depend on unknown facts
	// waiting are paths that forked and have not ended, the next one last.
	waiting []*Path
}

// New returns a walk that has not begun.
func New(table Table, host Host) *Walk {
	return &Walk{table: table, host: host, visited: make(map[position]*Step)}
}

// maxSteps limits the number of expressions of a run. The kernel accepts no
// loops, but a table can change between two reads.
const maxSteps = 1 << 21

// Run continues a path at the first rule of a base chain and returns the paths
// that it becomes, with their ends. Paths that depend on unknown facts and
// reach the same state become one.
//
// An error of Table.Rules or Table.Row ends the run.
func (w *Walk) Run(p *Path, chain string) (ended []*Path, err error) {
	p.enter(chain)
	p.callers, p.End = nil, End{}
	w.seen = make(map[state]bool)
	w.waiting = append(w.waiting[:0], p)
	for steps := 0; len(w.waiting) > 0; steps++ {
		p := w.waiting[len(w.waiting)-1]
		if p.End.Action != undecided {
			w.waiting = w.waiting[:len(w.waiting)-1]
			ended = append(ended, p)
			continue
		}
		if steps == maxSteps {
			return nil, fmt.Errorf("chain %s: the walk does not end", p.at.chain)
		}
		if err := w.advance(p); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// advance runs one expression of a path.
func (w *Walk) advance(p *Path) error {
	rules, err := w.table.Rules(p.at.chain)
	if err != nil {
		return err
	}
	if p.at.expression == 0 && w.merge(p) {
		return nil
	}
	if p.at.rule == len(rules) {
		p.back()
		return nil
	}
	rule := &rules[p.at.rule]
	if p.at.expression == 0 {
		p.step, p.registers = w.visit(p.at, rule), registers{}
	}
	if p.at.expression == len(rule.Expressions) {
		p.matched()
		p.nextRule()
		return nil
	}
	if err := w.evaluate(p, rule.Expressions[p.at.expression]); err != nil {
		return fmt.Errorf("chain %s: rule %d: %w", p.at.chain, p.at.rule+1, err)
	}
	return nil
}

// merge drops a path that depends on unknown facts if another one was in the
// same state. This bounds the number of paths.
func (w *Walk) merge(p *Path) bool {
	if p.Unknown == nil {
		return false
	}
	s := p.state()
	if w.seen[s] {
		w.replace()
		return true
	}
	w.seen[s] = true
	return false
}

// replace continues with other paths instead of the last one. The last of them
// is the next.
func (w *Walk) replace(paths ...*Path) {
	w.waiting = append(w.waiting[:len(w.waiting)-1], paths...)
}

// decide continues a path after an expression that matches or not. If this is
// not known, it continues with both.
func (w *Walk) decide(p *Path, matches bool, unknown error) {
	switch {
	case unknown != nil:
		p.doubt(unknown)
		rest := p.fork()
		rest.nextRule()
		p.next()
		w.replace(rest, p)
	case matches:
		p.next()
	default:
		p.nextRule()
	}
}

// split continues a path with the next expression if the rule matches, and the
// rest of its probability with the next rule.
func (w *Walk) split(p *Path, matching *big.Rat) {
	if matching.Sign() == 0 {
		p.nextRule()
		return
	}
	rest := p.fork()
	rest.Share = new(big.Rat).Mul(p.Share, new(big.Rat).Sub(big.NewRat(1, 1), matching))
	rest.nextRule()
	p.Share = new(big.Rat).Mul(p.Share, matching)
	p.next()
	w.replace(rest, p)
}

// draw replaces a path by one for each value of a random number in its
// registers.
func (w *Walk) draw(p *Path, d draw) {
	share := new(big.Rat).Mul(p.Share, big.NewRat(1, int64(d.mod)))
	paths := make([]*Path, d.mod)
	for i := range d.mod {
		fork := p.fork()
		fork.Share = share
		fork.set(d.slot, d.offset+i)
		paths[d.mod-1-i] = fork // the first one is next
	}
	w.replace(paths...)
}

// Kernel is a table of any program in the kernel.
type Kernel struct {
	Conn  *nft.Conn
	Table *nft.Table
}

// Rules implements Table.
func (k Kernel) Rules(chain string) ([]nft.Rule, error) {
	return k.Conn.Rules(k.Table, chain)
}

// Set implements Table.
func (k Kernel) Set(name string) (*nft.Set, error) {
	set, err := k.Conn.FindSet(k.Table, name)
	if err == nil && set == nil {
		err = fmt.Errorf("%s has no set %s", k.Table, name)
	}
	return set, err
}

// Row implements Table.
func (k Kernel) Row(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	found, err := k.Conn.FindRows(k.Table, []nft.Row{{Set: set, Key: key}})
	if err != nil {
		return nft.Row{}, err
	}
	return found[0], nil
}

// cache is a table that reads each chain and each set once.
type cache struct {
	Table
	chains map[string][]nft.Rule
	sets   map[string]*nft.Set
}

// Cache returns a table that reads each chain and each set once.
func Cache(t Table) Table {
	return &cache{t, make(map[string][]nft.Rule), make(map[string]*nft.Set)}
}

// Rules implements Table.
func (c *cache) Rules(chain string) ([]nft.Rule, error) {
	return once(c.chains, chain, c.Table.Rules)
}

// Set implements Table.
func (c *cache) Set(name string) (*nft.Set, error) { return once(c.sets, name, c.Table.Set) }

// once returns the value of a map, which read provides when it is first needed.
func once[V any](values map[string]V, name string, read func(string) (V, error)) (V, error) {
	if v, ok := values[name]; ok {
		return v, nil
	}
	v, err := read(name)
	if err == nil {
		values[name] = v
	}
	return v, err
}
