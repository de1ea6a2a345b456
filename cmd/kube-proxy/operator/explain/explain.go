package explain

import (
	"cmp"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
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
	outcomes := make([]Outcome, len(fates))
	for i, f := range fates {
		outcomes[i] = f.outcome(&q)
		r.ServicePort = cmp.Or(r.ServicePort, f.servicePort())
	}
	r.add(outcomes)
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

// packet returns the packet that enters the table, and sets the hook.
func (j *journey) packet() (p walk.Packet, err error) {
	p = walk.Packet{
		Source: netip.AddrPortFrom(j.query.Source, 0), Destination: j.query.Destination,
		Protocol: uint8(j.query.Protocol),
	}
	typ, err := j.host.RouteType(j.query.Source)
	switch {
	case err != nil:
	case j.query.Interface != "":
		j.point, p.In.Name = nft.Prerouting, j.query.Interface
	case typ == unix.RTN_LOCAL:
		j.point = nft.Output
	default:
		j.point = nft.Prerouting
		p.In.Name, p.In.Unknown = j.host.Interface(j.query.Source)
	}
	return p, err
}

// dispatch runs the packet through the chains of the hook at which it enters
// the table.
func (j *journey) dispatch() ([]*walk.Path, error) {
	p, err := j.packet()
	if err != nil {
		return nil, err
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
func (j *journey) leave(dispatched []*walk.Path) (fates []fate, err error) {
	for _, p := range dispatched {
		f := fate{p, p.End, p.Rows}
		if to := p.End.To; to.IsValid() {
			p.Packet.Destination, p.Packet.Translated = to, true
		}
		leaves := p.End.Action == walk.Accepted
		if leaves && j.point == nft.Prerouting {
			typ, err := j.host.RouteType(p.Packet.Destination.Addr())
			if err != nil {
				return nil, err
			}
			leaves = typ != unix.RTN_LOCAL
		}
		if !leaves {
			fates = append(fates, f)
			continue
		}
		ended, err := j.run(p, nft.Postrouting)
		if err != nil {
			return nil, err
		}
		for _, p := range ended {
			fates = append(fates, fate{p, f.dispatched, f.rows})
		}
	}
	return fates, nil
}
