package random

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

// Config limits what is generated.
type Config struct {
	// Endpoints are the addresses of possible endpoints of all Services by the
	// name of the server.
	Endpoints map[string][2]netip.Addr
	// Apps is the highest number of Services at a time. 0 means 24.
	Apps int
	// Families are the families of Services: 0 for IPv4, 1 for IPv6. None means
	// both.
	Families []int
	// Conflicts is the percentage of external addresses that other Services can
	// have, too.
	Conflicts int
	// ManyIPs is the number of external IPs of a few Services.
	ManyIPs int
	// Alone generates what needs no API server: NodePorts in conflict, creation
	// times, EndpointSlices without a Service, nodes with other addresses, more
	// faults, and the annotations of nftproxy.
	Alone bool
}

// EnoughIPs is enough for Config.ManyIPs that service ports with an endpoint
// have a number (see ruleset.Plan.Number), and that none keeps the number that
// it had with more endpoints.
const EnoughIPs = 4200

// Generator generates a cluster and its changes as a function of the seed.
type Generator struct {
	*rand.Rand
	Config
}

// New returns a generator.
func New(seed, stream uint64, config Config) *Generator {
	if config.Apps == 0 {
		config.Apps = 24
	}
	if config.Families == nil {
		config.Families = []int{0, 1}
	}
	return &Generator{rand.New(rand.NewPCG(seed, stream)), config}
}

// Chance returns true with a probability in percent.
func (g *Generator) Chance(percent int) bool { return g.IntN(100) < percent }

// Pick returns one of the choices.
func Pick[T any](g *Generator, choices []T) T { return choices[g.IntN(len(choices))] }

// some returns a random part of all values, in their order.
func some[T any](g *Generator, all []T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(T) bool { return g.Chance(50) })
}

// State is the desired state of the cluster.
type State struct {
	Apps []*App
	Node *cluster.Node // node1
}

// Named returns the app of a name, or nil.
func (s *State) Named(name string) *App {
	for _, a := range s.Apps {
		if a.Name() == name {
			return a
		}
	}
	return nil
}

// Initial returns the first state.
func (g *Generator) Initial() *State {
	s := &State{Node: g.node("east")}
	for range g.Apps * 7 / 12 {
		s.Apps = append(s.Apps, g.newApp(s.freeSlot(g)))
	}
	return s
}

// Clone returns a copy.
func (s *State) Clone() *State {
	c := &State{Node: s.Node}
	for _, a := range s.Apps {
		other := *a
		c.Apps = append(c.Apps, &other)
	}
	return c
}

// Next returns the state after a step of changes, and describes them.
func (g *Generator) Next(before *State) (after *State, done []string) {
	after = before.Clone()
	for range 3 + g.IntN(6) {
		done = append(done, g.Change(after))
	}
	return after, done
}

// Change makes a change, and describes it.
func (g *Generator) Change(s *State) string {
	choice := g.IntN(100)
	switch {
	case choice < 12 && len(s.Apps) < g.Apps || len(s.Apps) == 0:
		a := g.newApp(s.freeSlot(g))
		s.Apps = append(s.Apps, a)
		return "add " + a.Name()
	case choice < 22:
		i := g.IntN(len(s.Apps))
		name := s.Apps[i].Name()
		s.Apps = slices.Delete(s.Apps, i, i+1)
		return "delete " + name
	case choice < 26:
		s.Node = g.node(Pick(g, []string{"east", "west", ""}))
		return fmt.Sprintf("zone %q", s.Node.Zone)
	}
	a, aspect := Pick(g, s.Apps), g.IntN(aspects+3)
	if aspect >= aspects { // these change most often
		aspect = endpoints + aspect%2
	}
	a.seeds[aspect] = g.Uint64()
	return a.Name() + " " + aspectNames[aspect]
}

// node returns node1.
func (g *Generator) node(zone string) *cluster.Node {
	addrs := slices.Concat(NodeAddrs(), SecondAddrs())
	n := &cluster.Node{
		Name: "node1", Zone: zone, IPs: NodeAddrs(), NodePortIPs: addrs, LocalIPs: addrs, PodCIDRs: lab.PodRanges(),
		ServiceCIDRs: slices.Concat(lab.ServiceRanges(), SecondServiceRanges()),
	}
	if g.Alone {
		n.LocalIPs = some(g, addrs)
		n.NodePortIPs = some(g, n.LocalIPs) // the proxy selects them from the others
		n.ServiceCIDRs, n.PodCIDRs = some(g, n.ServiceCIDRs), some(g, n.PodCIDRs)
	}
	return n
}

// freeSlot returns the number of no app.
func (s *State) freeSlot(g *Generator) int {
	for {
		slot := g.IntN(2 * g.Apps)
		if !slices.ContainsFunc(s.Apps, func(a *App) bool { return a.Slot == slot }) {
			return slot
		}
	}
}
