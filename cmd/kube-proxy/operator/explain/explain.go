package explain

import (
	"cmp"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Table is a table of a proxy.
type Table interface {
	walk.Table
	// BaseChain returns the name of the table's chain at a hook point.
	BaseChain(point nft.HookPoint) (string, error)
}

// Explain walks a hypothetical packet through the table of a proxy. A rule that
// depends on an unknown fact is an error: the rules of a proxy do not.
func Explain(table Table, host walk.Host, q Query) (*Result, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	j := newJourney(table, host, q)
	dispatched, err := j.dispatch()
	if err != nil {
		return nil, err
	}
	fates, err := j.leave(dispatched)
	if err != nil {
		return nil, err
	}
	r := &Result{
		Destination: q.Destination, Protocol: q.Protocol.String(), Source: q.Source, From: q.From,
		Hook: j.point.String(), Walk: stepsOf(q.family(), j.walk),
	}
	known := make(map[Outcome]int)
	for _, f := range fates {
		r.add(f.outcome(&q), known)
		r.ServicePort = cmp.Or(r.ServicePort, f.servicePort())
	}
	r.Answer = r.answer()
	return r, nil
}

// journey is the way of a packet through the base chains of a proxy's table.
type journey struct {
	table Table
	host  walk.Host
	walk  *walk.Walk
	query Query
	point nft.HookPoint // at which the packet enters the table
}

// fate is a path of a packet that ended.
type fate struct {
	*walk.Path
	dispatched walk.End  // at the hook prerouting or output
	rows       []nft.Row // that rules found there
}

func newJourney(table Table, host walk.Host, q Query) *journey {
	return &journey{table: table, host: host, walk: walk.New(walk.Cache(table), host), query: q}
}

// dispatch runs the packet through the chains of the hook at which it enters
// the table, and sets this hook.
func (j *journey) dispatch() ([]*walk.Path, error) {
	p := walk.Packet{
		Source: netip.AddrPortFrom(j.query.Source, 0), Destination: j.query.Destination,
		Protocol: uint8(j.query.Protocol),
	}
	typ, err := j.host.RouteType(j.query.Source)
	j.point = nft.Prerouting
	switch {
	case err != nil:
		return nil, err
	case j.query.Interface != "":
		p.In.Name = j.query.Interface
	case typ == unix.RTN_LOCAL:
		j.point = nft.Output
	default:
		p.In.Name, p.In.Unknown = j.host.Interface(j.query.Source)
	}
	return j.run(walk.NewPath(p), j.point)
}

// run runs a path through the chains of a hook.
func (j *journey) run(p *walk.Path, point nft.HookPoint) ([]*walk.Path, error) {
	base, err := j.table.BaseChain(point)
	if err != nil {
		return nil, err
	}
	ended, err := j.walk.Run(p, base)
	for _, p := range ended {
		err = cmp.Or(err, p.Unknown)
	}
	return ended, err
}

// leave translates the packets that are accepted and runs those that leave this
// node through the chains of postrouting.
func (j *journey) leave(paths []*walk.Path) (fates []fate, err error) {
	for _, p := range paths {
		dispatched, rows, ended := p.End, p.Rows, []*walk.Path{p}
		if dispatched.To.IsValid() {
			p.Packet.Destination, p.Packet.Translated = dispatched.To, true
		}
		leaves := dispatched.Action == walk.Accepted
		if leaves && j.point == nft.Prerouting {
			typ, err := j.host.RouteType(p.Packet.Destination.Addr())
			if err != nil {
				return nil, err
			}
			leaves = typ != unix.RTN_LOCAL
		}
		if leaves {
			if ended, err = j.run(p, nft.Postrouting); err != nil {
				return nil, err
			}
		}
		for _, p := range ended {
			fates = append(fates, fate{p, dispatched, rows})
		}
	}
	return fates, nil
}

// Query is a hypothetical packet: the first one of a connection.
type Query struct {
	Destination netip.AddrPort
	Protocol    cluster.Protocol
	// Source is the address of the client. A packet from an address of this
	// node enters the chains of the hook output, others the chains of
	// prerouting.
	Source netip.Addr
	// From describes the source in the result. It can be empty.
	From string
	// Interface is the name of the interface on which the packet arrives. By
	// default it is the interface of the route to the source.
	Interface string
}

// Kinds of sources.
const (
	FromPod     = "pod"
	FromNode    = "node"
	FromOutside = "outside"
)

func (q *Query) family() nft.Family { return nft.FamilyOf(q.Destination.Addr()) }

func (q *Query) validate() error {
	if !q.family().Of(q.Destination.Addr()) {
		return fmt.Errorf("destination %s is neither IPv4 nor IPv6", q.Destination)
	}
	if !q.family().Of(q.Source) {
		return fmt.Errorf("source %s and destination %s are of different families", q.Source, q.Destination.Addr())
	}
	return nil
}
