package ruleset

import (
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Rows appends the rows of one service port to rows. A nil plan has none. Other
// service ports can have the same rows of shared sets (see IsShared).
func (r *Ruleset) Rows(rows []nft.Row, p *Plan) []nft.Row {
	if p == nil {
		return rows
	}
	name := p.Name()
	for _, f := range p.Frontends {
		one := r.newDispatch(p, f, name)
		d := &one
		rows = r.connections(rows, d)
		if f.IsClusterIP() {
			rows = append(rows, nft.Row{Set: r.layout.clusterIPs, Key: nft.Tuple{}.Addr(f.Addr)})
		}
		rows = r.onLocalhost(r.sources(r.targets(r.dispatch(rows, d), d), d), d)
	}
	return r.hairpin(r.numbered(rows, p), p)
}

// dispatch contains what the rows of one frontend have in common.
type dispatch struct {
	*dispatchSets
	plan     *Plan
	frontend ServedFrontend
	at       nft.Tuple // with which the keys of its rows begin
	name     string
}

func (r *Ruleset) newDispatch(p *Plan, f ServedFrontend, name string) dispatch {
	var key nft.Tuple
	if !f.IsNodePort() {
		key = key.Addr(f.Addr)
	}
	key = key.Proto(uint8(f.Proto)).Port(f.Port)
	return dispatch{dispatchSets: r.layout.dispatch(f.Frontend), plan: p, frontend: f, at: key, name: name}
}

// class returns the class of a frontend.
func (d *dispatch) class() Class {
	p, f, list := d.plan, d.frontend, d.plan.list(d.frontend.Policy)
	reason := p.Reach(f.Policy).Reason
	var c Class
	switch {
	case f.splitsClients() && reason != NoEndpoints:
		c = classLocal
	case p.hasChains():
		c = classChains
	case reason != "":
		c = refusalClasses[reason]
	case f.IsClusterIP():
		return list.class(toClusterIP)
	case p.guards(f):
		return list.class(toGuarded)
	default:
		return list.class(d.masqueraded)
	}
	if p.guards(f) {
		c |= guardedClass
	}
	return c
}

// dispatch appends the rows that lead the packets of a frontend to the chain
// that draws an endpoint, or to the one that refuses them.
func (r *Ruleset) dispatch(rows []nft.Row, d *dispatch) []nft.Row {
	p, f := d.plan, d.frontend
	rows = append(rows, d.classRow(d.classes, d.class(), d.name))
	reason := p.Reach(f.Policy).Reason
	switch {
	case f.splitsClients() && reason != NoEndpoints:
		// This cluster's pods and this node may use all endpoints, other
		// clients those of this node (see program.localPolicy).
		rows = d.split(rows, d.allClasses, d.allChains, d.all)
		rows = d.split(rows, d.localClasses, d.localChains, d.local)
	case !p.hasChains():
	case reason != "":
		rows = append(rows, d.chainRow(d.noEndpoints, reason.name()))
	default:
		rows = append(rows, d.chainRow(d.chains, p.chainName(f.ownKind())))
	}
	return rows
}

// split appends a row of externalTrafficPolicy Local.
func (d *dispatch) split(rows []nft.Row, classes, chains *nft.Set, to chainKind) []nft.Row {
	switch reason := d.plan.Reach(to.policy()).Reason; {
	case reason == NoLocalEndpoints: // see program.localPolicy
		return rows
	case reason != "":
		return append(rows, d.classRow(classes, refusalClasses[reason], ""))
	case d.plan.hasChains():
		return append(rows, d.chainRow(chains, d.plan.chainName(ownKind(to.policy()))))
	}
	return append(rows, d.classRow(classes, d.plan.list(to.policy()).class(to), ""))
}

func (d *dispatch) classRow(m *nft.Set, c Class, comment string) nft.Row {
	return nft.Row{Set: m, Key: d.at, Data: nft.Tuple{}.Integer(uint32(c)), Comment: comment}
}

func (d *dispatch) chainRow(m *nft.Set, chain string) nft.Row {
	return nft.Row{Set: m, Key: d.at, Verdict: nft.VerdictGoto(chain), Comment: d.name}
}

// targets appends the rows from which balancers draw a frontend's target.
func (r *Ruleset) targets(rows []nft.Row, d *dispatch) []nft.Row {
	switch f := d.frontend; {
	case d.plan.hasChains():
		return rows
	case f.splitsClients():
		return d.indexed(d.indexed(rows, allIndex, cluster.PolicyCluster), firstIndex, cluster.PolicyLocal)
	default:
		return d.indexed(rows, firstIndex, f.Policy)
	}
}

// indexed appends the rows of the targets for traffic with a policy.
func (d *dispatch) indexed(rows []nft.Row, first uint32, policy cluster.Policy) []nft.Row {
	for i, t := range d.plan.Rows(policy) {
		rows = append(rows, nft.Row{Set: d.dispatchSets.targets, Key: d.at.Integer(first + uint32(i)), Data: t.data()})
	}
	return rows
}

// data returns the target as the data of a row.
func (t Target) data() nft.Tuple { return nft.Tuple{}.Addr(t.Addr).Port(t.Port) }

// guards reports whether the clients of a frontend are restricted.
func (p *Plan) guards(f ServedFrontend) bool {
	return p.Guarded && f.Kind == LoadBalancerIP && !f.IsNodePort()
}

// sources appends the rows of the clients that may use a LoadBalancer IP.
func (r *Ruleset) sources(rows []nft.Row, d *dispatch) []nft.Row {
	if !d.plan.guards(d.frontend) {
		return rows
	}
	for _, p := range d.plan.Sources {
		rows = append(rows, nft.Row{Set: r.layout.firewallSources[p.Bits()-1], Key: d.at.Addr(p.Addr())})
	}
	return rows
}

// hairpin appends the rows of the endpoints on this node. Their connections to
// themselves are masqueraded.
func (r *Ruleset) hairpin(rows []nft.Row, p *Plan) []nft.Row {
	seen := make(map[Target]bool)
	for _, targets := range [][]Target{p.Cluster, p.Local} {
		for _, t := range targets {
			if t.Here && !seen[t] {
				seen[t] = true
				rows = append(rows, nft.Row{
					Set: r.layout.hairpin,
					Key: nft.Tuple{}.Addr(t.Addr).Addr(t.Addr).Proto(uint8(p.Port.Protocol)).Port(t.Port),
				})
			}
		}
	}
	return rows
}
