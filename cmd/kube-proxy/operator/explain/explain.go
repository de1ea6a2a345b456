package explain

import (
	"cmp"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
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
	known := make(map[Outcome]int)
	for _, f := range fates {
		r.add(f.outcome(&q), known)
		r.ServicePort = cmp.Or(r.ServicePort, f.servicePort())
	}
	r.conclude()
	return r, nil
}

// InKernel walks a hypothetical packet through the table in the kernel. All
// rules and rows that it reads belong to one generation.
func InKernel(k *node.Kernel, q Query) (r *Result, err error) {
	_, err = k.Conn.Snapshot(func() error {
		r, err = Explain(k, k, q)
		return err
	})
	return r, err
}

// Mark returns the mark that the rules in the kernel give a packet whose
// destination they translate. ok is false if they do not.
func Mark(k *node.Kernel, q Query) (mark uint32, ok bool) {
	paths, err := newJourney(k, k, q).dispatch()
	for _, p := range paths {
		if p.End.To.IsValid() {
			return p.Packet.Mark, err == nil
		}
	}
	return 0, false
}

// journey is the way of a packet through the base chains of a proxy's table.
type journey struct {
	table Table
	host  walk.Host
	walk  *walk.Walk
	query Query
	point nft.HookPoint // at which the packet enters the table
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
