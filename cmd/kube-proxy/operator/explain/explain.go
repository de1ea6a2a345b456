package explain

import (
	"cmp"
	"math/big"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Explain walks a hypothetical packet through a table of a node.
func Explain(table Table, routes Routes, q Query) (*Result, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	m := &machine{
		table: table, routes: routes, walk: newWalk(),
		chains: make(map[string][]nft.Rule), sets: make(map[string]*nft.Set),
	}
	first := &path{share: big.NewRat(1, 1), packet: packet{
		family: q.family(), source: q.Source, dest: q.Destination.Addr(), protocol: q.Protocol, port: q.Destination.Port(),
	}}
	point, err := m.hook(&q)
	if err != nil {
		return nil, err
	}
	paths, err := m.dispatch(first, point)
	if err != nil {
		return nil, err
	}
	r := &Result{
		Destination: q.Destination, Protocol: ProtocolName(q.Protocol), Source: q.Source, From: q.From,
		Hook: point.String(), Walk: m.walk.steps,
	}
	outcomes := make([]Outcome, len(paths))
	for i, p := range paths {
		outcomes[i] = p.outcome(&q)
		r.ServicePort = cmp.Or(r.ServicePort, p.servicePort())
	}
	r.add(outcomes)
	r.Answer = r.answer()
	return r, nil
}

// hook returns the hook at which the packet enters the table, and sets the
// interface on which it arrives.
func (m *machine) hook(q *Query) (nft.HookPoint, error) {
	typ, err := m.routes.RouteType(q.Source)
	if err != nil {
		return 0, err
	}
	if typ == unix.RTN_LOCAL && q.Interface == "" {
		m.iif = func() (string, error) { return "", nil }
		return nft.Output, nil
	}
	m.iif = sync.OnceValues(func() (string, error) {
		if q.Interface != "" {
			return q.Interface, nil
		}
		return m.routes.Interface(q.Source)
	})
	return nft.Prerouting, nil
}

// dispatch runs a path through the chains of a hook and, if its packet leaves
// this node, through those of postrouting.
func (m *machine) dispatch(first *path, point nft.HookPoint) (ended []*path, err error) {
	base, err := m.table.BaseChain(point)
	if err != nil {
		return nil, err
	}
	dispatched, err := m.run(first, base)
	if err != nil {
		return nil, err
	}
	for _, p := range dispatched {
		p.dispatched = p.end
		if p.end.action != accepted {
			ended = append(ended, p)
			continue
		}
		p.translate()
		after, err := m.leave(p, point)
		if err != nil {
			return nil, err
		}
		ended = append(ended, after...)
	}
	return ended, nil
}

// translate applies the translation of the destination to the packet.
func (p *path) translate() {
	to := p.dispatched.to
	if !to.IsValid() {
		return
	}
	p.packet.dest, p.packet.port, p.packet.translated = to.Addr(), to.Port(), true
}

// leave runs a path through the chains of postrouting. A packet that arrived
// for an address of this node does not pass them.
func (m *machine) leave(p *path, point nft.HookPoint) ([]*path, error) {
	if point == nft.Prerouting {
		typ, err := m.routes.RouteType(p.packet.dest)
		if err != nil {
			return nil, err
		}
		if typ == unix.RTN_LOCAL {
			return []*path{p}, nil
		}
	}
	base, err := m.table.BaseChain(nft.Postrouting)
	if err != nil {
		return nil, err
	}
	rows := p.rows // those of postrouting are not about Services
	ended, err := m.run(p, base)
	for _, p := range ended {
		p.rows = rows
	}
	return ended, err
}

// outcome returns the fate of a path's packet.
func (p *path) outcome(q *Query) Outcome {
	o := Outcome{Probability: p.share}
	switch {
	case p.end.action == rejected:
		o.Action, o.RejectWith = Reject, p.end.rejectWith
	case p.end.action == dropped:
		o.Action = Drop
	case p.dispatched.to.IsValid():
		o.Action, o.Endpoint = ToEndpoint, p.dispatched.to
		o.Affinity = p.affinity()
	default:
		o.Action = Pass
	}
	o.Masqueraded = p.end.masquerading != nil
	switch {
	case o.Action != ToEndpoint:
		o.Reason = p.refusal(q)
	case o.Masqueraded:
		o.Reason = p.masqueradeReason()
	}
	return o
}

func (p *path) affinity() string {
	switch {
	case p.known:
		return "known"
	case p.recorded:
		return "new"
	}
	return ""
}

// add adds outcomes. Those that differ in their probability only become one.
func (r *Result) add(outcomes []Outcome) {
	index := make(map[Outcome]int)
	for _, o := range outcomes {
		key := o
		key.Probability = nil
		i, known := index[key]
		if !known {
			index[key] = len(r.Outcomes)
			r.Outcomes = append(r.Outcomes, o)
			continue
		}
		r.Outcomes[i].Probability = new(big.Rat).Add(r.Outcomes[i].Probability, o.Probability)
	}
}
