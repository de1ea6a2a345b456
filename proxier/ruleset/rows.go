package ruleset

import (
	"slices"

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
	rows = slices.Grow(rows, p.rowCount())
	for _, f := range p.Frontends {
		one := r.newDispatch(p, f, name)
		d := &one
		rows = r.connections(rows, d)
		if f.IsClusterIP() {
			rows = append(rows, nft.Row{Set: r.layout.clusterIPs, Key: nft.Tuple{}.Addr(f.Addr)})
			rows = r.internal(rows, d)
			continue
		}
		if f.Kind == LoadBalancerIP {
			rows = r.firewall(rows, d)
		}
		rows = r.outside(rows, d)
		rows = r.onLocalhost(rows, d)
	}
	return r.hairpin(r.numbered(rows, p), p)
}

// rowCount returns the number of rows of a plan, approximately.
func (p *Plan) rowCount() int {
	const dispatchRows = 4 // of a frontend
	targets := p.rowsOf(toAll) + p.rowsOf(toLocal)
	if p.hasChains() {
		return len(p.Frontends)*dispatchRows + targets
	}
	return len(p.Frontends) * (dispatchRows + targets)
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

// row returns a dispatch row, whose comment names the service port.
func (d *dispatch) row(set *nft.Set, v nft.Verdict) nft.Row {
	return nft.Row{Set: set, Key: d.at, Verdict: v, Comment: d.name}
}

// internal appends the rows of a ClusterIP.
func (r *Ruleset) internal(rows []nft.Row, d *dispatch) []nft.Row {
	switch reason := d.plan.Reach(d.frontend.Policy).Reason; reason {
	case NoEndpoints, NoLocalEndpoints:
		return append(rows, d.row(d.noEndpoints, nft.VerdictGoto(reason.name())))
	}
	kind := kindOf(d.frontend.Policy)
	rows = append(rows, d.row(d.services, r.choose(d, d.balance, kind)))
	return r.indexed(rows, d, 0, kind)
}

// outside appends the rows of an external IP, a LoadBalancer IP or a NodePort.
func (r *Ruleset) outside(rows []nft.Row, d *dispatch) []nft.Row {
	reason := d.plan.Reach(d.frontend.Policy).Reason
	if reason == NoEndpoints {
		return append(rows, d.row(d.noEndpoints, nft.VerdictGoto(reason.name())))
	}
	if d.frontend.Policy == cluster.PolicyCluster {
		rows = append(rows, d.row(d.services, r.choose(d, d.masqueraded, toAllMasqueraded)))
		return r.indexed(rows, d, 0, toAll)
	}
	// This cluster's pods and this node may use all endpoints, other clients
	// the rows of this node (see program.localPolicy).
	rows = append(rows,
		nft.Row{Set: d.isLocal, Key: d.at, Comment: d.name},
		nft.Row{Set: d.cluster, Key: d.at, Verdict: r.choose(d, d.balanceAll, toAll)})
	rows = r.indexed(rows, d, allOffset, toAll)
	if reason == NoLocalEndpoints {
		return rows
	}
	rows = append(rows, nft.Row{Set: d.local, Key: d.at, Verdict: r.choose(d, d.balance, toLocal)})
	return r.indexed(rows, d, 0, toLocal)
}

// choose returns the verdict for a frontend's traffic: it goes to a balancer,
// or to a chain of the service port, or to the chain that rejects it because
// all endpoints have weight 0.
func (r *Ruleset) choose(d *dispatch, shared balancerKind, own chainKind) nft.Verdict {
	switch reason := d.plan.reach(own).Reason; {
	case reason != "":
		return nft.VerdictGoto(reason.name())
	case d.plan.hasChains():
		return nft.VerdictGoto(d.plan.chainName(own))
	}
	return nft.VerdictGoto(r.names.get(balancer{shared, d.plan.draw(own), d.plan.rowsOf(own)}))
}

// indexed appends the rows in which a balancer looks up a frontend's targets.
func (r *Ruleset) indexed(rows []nft.Row, d *dispatch, offset uint32, kind chainKind) []nft.Row {
	if d.plan.hasChains() {
		return rows
	}
	set := d.rowsOf(d.plan.draw(kind))
	for i, t := range d.plan.indexed(kind) {
		rows = append(rows, nft.Row{
			Set: set, Key: d.at.Integer(offset + uint32(i)), Data: nft.Tuple{}.Addr(t.Addr).Port(t.Port),
		})
	}
	return rows
}

// firewall appends the rows that restrict the clients of a LoadBalancer IP.
func (r *Ruleset) firewall(rows []nft.Row, d *dispatch) []nft.Row {
	if !d.plan.Guarded {
		return rows
	}
	rows = append(rows, d.row(r.layout.firewallIPs, nft.VerdictJump(chainFirewall)))
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
