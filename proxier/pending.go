package proxier

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// pending are the changes that a family has not taken yet. If they cost much,
// the family takes a part of them at a time: those of one Service of each
// namespace in turn, so that a small change does not wait for the many changes
// of another namespace. A part has
//
//   - the Service and all its EndpointSlices that changed;
//   - both Services between which an EndpointSlice moves;
//   - both Services between which a frontend moves, so that one transaction
//     moves it.
type pending struct {
	family nft.Family
	node   bool
	// changes are the Services that changed. turns are their namespaces, in the
	// order of their turns.
	changes map[cluster.ServiceName]*change
	turns   []*turn
	byName  map[string]*turn
	// cost is that of all changes, services and slices are the numbers of
	// objects in them, triggers that of their triggers.
	cost, services, slices, triggers int
	// wanted has the changes whose Services claim a frontend, in order. It is
	// made when a part is taken, from unindexed. It may contain former claims.
	// urgent are changes that give up a frontend for which another Service
	// waits: it must not wait for the turn of the namespace.
	wanted            map[ruleset.Frontend][]wish
	unindexed, urgent []*change
}

// change is what changed of a Service and its EndpointSlices.
type change struct {
	name cluster.ServiceName
	// set reports whether the Service changed. spec is nil if it was deleted.
	set  bool
	spec *cluster.Service
	// slices are the EndpointSlices that the Service has or had. The value
	// reports whether the family has their endpoints.
	slices map[translate.SliceName]bool
	// moved are the Services that the slices belonged to, or belong to now.
	moved    []cluster.ServiceName
	triggers []time.Time
	cost     int
	// frontends are those of spec, if the change is indexed. version is the
	// number of specs.
	frontends []ruleset.Frontend
	version   int
}

// wish is the claim of a change to a frontend.
type wish struct {
	*change
	version int
}

// turn are the changes of a namespace, in order. A change can also be taken
// before its turn.
type turn struct {
	namespace string
	names     []cluster.ServiceName
}

// The cost of a change is about 1 for each endpoint of the EndpointSlices.
const (
	serviceCost = 100 // of a change
	portCost    = 10  // of a service port
	sliceCost   = 10  // of an EndpointSlice, beside its endpoints
	// partCost limits the changes that a family takes at a time: 540 small
	// Services, or 200 with 190 endpoints, which take about 5 ms.
	partCost = 60_000
)

func newPending(f nft.Family) *pending {
	return &pending{
		family: f, changes: make(map[cluster.ServiceName]*change), byName: make(map[string]*turn),
		wanted: make(map[ruleset.Frontend][]wish),
	}
}

// isEmpty reports whether there are no changes.
func (p *pending) isEmpty() bool { return !p.node && len(p.changes) == 0 }

// change returns the change of a Service, and adds it if necessary.
func (p *pending) change(name cluster.ServiceName) *change {
	c := p.changes[name]
	if c == nil {
		c = &change{name: name, slices: make(map[translate.SliceName]bool)}
		p.changes[name] = c
		p.pay(c, serviceCost)
		n := p.byName[name.Namespace]
		if n == nil {
			n = &turn{namespace: name.Namespace}
			p.byName[name.Namespace], p.turns = n, append(p.turns, n)
		}
		n.names = append(n.names, name)
	}
	return c
}

func (p *pending) pay(c *change, cost int) { c.cost, p.cost = c.cost+cost, p.cost+cost }

// setService records a Service. spec is nil if it was deleted.
func (p *pending) setService(name cluster.ServiceName, spec *cluster.Service) {
	c := p.change(name)
	if !c.set {
		p.services++
	}
	if !c.set && spec != nil {
		p.pay(c, portCost*len(spec.Ports))
	}
	if c.spec = spec; c.version == 0 || c.frontends != nil { // not among them
		p.unindexed = append(p.unindexed, c)
	}
	c.set, c.frontends = true, nil
	c.version++
}

// setSlice records a version of an EndpointSlice that the source has, or had
// until now: then the family may have it.
func (p *pending) setSlice(s *translate.EndpointSlice, had bool) *change {
	c := p.change(s.Service)
	if _, known := c.slices[s.Name]; !known {
		c.slices[s.Name] = had
		p.slices++
		p.pay(c, sliceCost+len(s.Endpoints))
	}
	return c
}

// holder is what a family has taken before. It is a *table.Table.
type holder interface {
	// Delay returns how long further changes of a namespace have to wait.
	Delay(namespace string) time.Duration
	// Holder returns the Service that owns a frontend.
	Holder(ruleset.Frontend) (cluster.ServiceName, bool)
	// Held returns the frontends that a Service owns.
	Held(cluster.ServiceName) []ruleset.Frontend
	// Awaited reports whether another Service waits for a frontend.
	Awaited(ruleset.Frontend) bool
}

// take removes and returns all changes if they cost at most limit, and no
// namespace has to wait. Otherwise it returns a part of them. If some are left,
// wait is the time until the family should take them.
func (p *pending) take(limit int, from holder) (taken []*change, wait time.Duration) {
	late := func(n *turn) bool { return from.Delay(n.namespace) > 0 }
	if p.cost <= limit && !slices.ContainsFunc(p.turns, late) {
		taken = slices.Collect(maps.Values(p.changes))
		*p = *newPending(p.family)
		return taken, 0
	}
	p.index(from)
	var waiting []*turn
	begin := p.cost
	for _, c := range p.urgent {
		taken = p.takeWith(taken, c, from)
	}
	p.urgent = nil
	for len(p.turns) > 0 && begin-p.cost < limit {
		n := p.turns[0]
		p.turns = p.turns[1:]
		switch c := p.first(n); {
		case c == nil:
			delete(p.byName, n.namespace)
		case late(n):
			waiting = append(waiting, n)
		default:
			taken = p.takeWith(taken, c, from)
			p.turns = append(p.turns, n)
		}
	}
	p.turns = slices.Concat(waiting, p.turns)
	if len(p.changes) == 0 {
		*p = *newPending(p.family)
		return taken, 0
	}
	wait = math.MaxInt64
	for _, n := range p.turns {
		if p.first(n) != nil {
			wait = min(wait, from.Delay(n.namespace))
		}
	}
	return taken, wait
}

// first returns the first change of a namespace, nil if there is none.
func (p *pending) first(n *turn) *change {
	for ; len(n.names) > 0; n.names = n.names[1:] {
		if c := p.changes[n.names[0]]; c != nil {
			return c
		}
	}
	return nil
}

// takeWith takes a change, and those that belong to the same part.
func (p *pending) takeWith(taken []*change, first *change, from holder) []*change {
	add := func(c *change) {
		if c != nil && p.changes[c.name] == c {
			delete(p.changes, c.name)
			p.cost -= c.cost
			p.slices, p.triggers = p.slices-len(c.slices), p.triggers-len(c.triggers)
			if c.set {
				p.services--
			}
			taken = append(taken, c)
		}
	}
	begin := len(taken)
	add(first)
	for i := begin; i < len(taken); i++ {
		c := taken[i]
		for _, name := range c.moved {
			add(p.changes[name])
		}
		if !c.set {
			continue
		}
		for _, f := range c.frontends {
			if owner, ok := from.Holder(f); ok && owner != c.name {
				if former := p.changes[owner]; former != nil && former.set {
					add(former)
				}
			}
		}
		for _, f := range c.givesUp(from) {
			add(p.heir(f))
		}
	}
	return taken
}

// index makes wanted and urgent complete.
func (p *pending) index(from holder) {
	for _, c := range p.unindexed {
		c.frontends = []ruleset.Frontend{} // not nil: it is indexed
		if p.changes[c.name] != c {
			continue
		}
		if c.spec != nil && slices.Contains(c.spec.Families, p.family) {
			addrs := ruleset.AddressesOf(p.family, c.spec)
			for _, port := range c.spec.Ports {
				for _, f := range ruleset.FrontendsAt(c.spec, addrs, port) {
					c.frontends = append(c.frontends, f.Frontend)
					p.wanted[f.Frontend] = append(p.wanted[f.Frontend], wish{c, c.version})
				}
			}
		}
		if slices.ContainsFunc(c.givesUp(from), from.Awaited) {
			p.urgent = append(p.urgent, c)
		}
	}
	p.unindexed = nil
}

// givesUp returns the frontends that a Service owns and does not claim any
// more.
func (c *change) givesUp(from holder) []ruleset.Frontend {
	claims := make(map[ruleset.Frontend]bool, len(c.frontends))
	for _, f := range c.frontends {
		claims[f] = true
	}
	return slices.DeleteFunc(from.Held(c.name), func(f ruleset.Frontend) bool { return claims[f] })
}

// heir returns the first change whose Service claims a frontend, nil if there
// is none.
func (p *pending) heir(f ruleset.Frontend) *change {
	all := p.wanted[f]
	for ; len(all) > 0; all = all[1:] {
		if w := all[0]; p.changes[w.name] == w.change && w.version == w.change.version {
			break
		}
	}
	if p.wanted[f] = all; len(all) == 0 {
		delete(p.wanted, f)
		return nil
	}
	return all[0].change
}
