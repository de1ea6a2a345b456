package keep

import (
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// Generation tracks the generation of the ruleset of a network namespace, which
// every transaction of any program increases by one. The Keepers of a process
// share it, so that they do not mistake each other for other programs. Each of
// them can belong to another goroutine.
//
// A Keeper has the turn from reading the generation until it has the answer to
// a commit. Meanwhile the others neither read nor commit. So a commit of one
// Keeper does not interrupt what another one reads, and is not foreign.
type Generation struct {
	busy chan struct{} // has an element while a Keeper has the turn

	mu   sync.Mutex // guards the fields below
	turn int        // the number of turns so far
	// current is the generation after our last commit, or the last one that was
	// read. It is 0 before the first.
	current uint32
	// foreign counts how often the generation had changed by more than our own
	// commits.
	foreign int
	ports   sync.Map // the netlink ports of the Keepers, as keys
	monitor monitor
}

// NewGeneration returns the Generation for the Keepers of a network namespace.
func NewGeneration() *Generation { return &Generation{busy: make(chan struct{}, 1)} }

// maxTurn is how long a Keeper waits for its turn, before it takes the turn of
// another one that hangs. If that one commits after all, its commit is foreign,
// which causes a verification.
const maxTurn = time.Second

// begin waits for the turn and returns its number for end.
func (g *Generation) begin() int {
	select {
	case g.busy <- struct{}{}:
	default:
		select {
		case g.busy <- struct{}{}:
		case <-time.After(maxTurn):
		}
	}
	return g.next()
}

// next returns the number of a turn that begins.
func (g *Generation) next() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn++
	return g.turn
}

// end ends a turn, unless another Keeper took it.
func (g *Generation) end(turn int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if turn != g.turn {
		return
	}
	select {
	case <-g.busy:
	default: // the Keeper began without waiting any longer, when another one ended
	}
}

// Poll reads the generation, unless a Keeper has the turn. It returns the
// number of foreign changes so far.
func (g *Generation) Poll(read func() (uint32, error)) (foreign int, err error) {
	select {
	case g.busy <- struct{}{}:
	default:
		_, foreign = g.state()
		return foreign, nil
	}
	defer g.end(g.next())
	now, err := read()
	if err != nil {
		return 0, err
	}
	return g.found(now), nil
}

// nameOthers finds out which other processes commit, in the background.
func (g *Generation) nameOthers(found func(processes []string)) {
	isOurs := func(port uint32) bool {
		_, ours := g.ports.Load(port)
		return ours
	}
	g.monitor.nameOthers(isOurs, found)
}

// state returns the current generation and the number of foreign changes.
func (g *Generation) state() (current uint32, foreign int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current, g.foreign
}

// found records the generation that the ruleset has. It returns the number of
// foreign changes.
func (g *Generation) found(now uint32) (foreign int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current != now {
		g.current = now
		g.foreign++
	}
	return g.foreign
}

// advance records a commit of ours that expected a generation.
func (g *Generation) advance(expected uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current == expected {
		g.current = nft.NextGeneration(expected)
	}
}

// exclude calls f, which reads the ruleset, while no other Keeper commits.
func (g *Generation) exclude(f func() error) error {
	defer g.end(g.begin())
	return f()
}
