package proxier

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// renderer turns plans into rows and chains. What it returns depends on the plan and on the node's configuration only.
type renderer struct {
	layout *layout
	mark   uint32
	names  balancerNames
}

// rows appends the rows of one service port. A nil plan has none. Rows of the shared sets (see sharedRows) can be
// those of other service ports too; all others are the service port's own.
func (r *renderer) rows(rows []nft.Row, p *plan) []nft.Row {
	if p == nil {
		return rows
	}
	name := p.name()
	const dispatchRows = 4 // about as many as a frontend has
	rows = slices.Grow(rows, len(p.frontends)*(len(p.cluster)+len(p.local)+dispatchRows))
	for _, f := range p.frontends {
		one := r.dispatch(p, f, name)
		d := &one
		switch f.kind {
		case clusterIP:
			rows = append(rows, nft.Row{Set: r.layout.clusterIPs, Key: nft.Tuple{}.Addr(f.addr)})
			rows = r.internal(rows, d)
		case loadBalancerIP:
			rows = r.firewall(rows, d)
			rows = r.outside(rows, d)
		default:
			rows = r.outside(rows, d)
		}
	}
	return r.hairpin(rows, p)
}

// dispatch is what the rows of one frontend have in common: its key, and the
// sets and balancers for frontends of its kind.
type dispatch struct {
	*plan
	servedFrontend
	key  nft.Tuple
	name string

	services, noEndpoints, endpoints *nft.Set

	isLocal, local, cluster *nft.Set // of externalTrafficPolicy Local

	balance, balanceAll, masqueraded balancerKind
}

func (r *renderer) dispatch(p *plan, f servedFrontend, name string) dispatch {
	l := r.layout
	if f.kind == nodePortFrontend {
		return dispatch{
			plan: p, servedFrontend: f, name: name, key: nft.Tuple{}.Proto(uint8(f.proto)).Port(f.port),
			services: l.serviceNodePorts, noEndpoints: l.noEndpointNodePorts, endpoints: l.nodePortEndpoints,
			isLocal: l.localNodePorts, local: l.localPolicyNodePorts, cluster: l.clusterPolicyNodePts,
			balance: nodePortBalance, balanceAll: nodePortBalanceAll, masqueraded: nodePort,
		}
	}
	return dispatch{
		plan: p, servedFrontend: f, name: name, key: nft.Tuple{}.Addr(f.addr).Proto(uint8(f.proto)).Port(f.port),
		services: l.serviceIPs, noEndpoints: l.noEndpointServices, endpoints: l.serviceEndpoints,
		isLocal: l.localIPs, local: l.localPolicyIPs, cluster: l.clusterPolicyIPs,
		balance: balance, balanceAll: balanceAll, masqueraded: external,
	}
}

// row returns a dispatch row, whose comment names the service port.
func (d *dispatch) row(set *nft.Set, v nft.Verdict) nft.Row {
	return nft.Row{Set: set, Key: d.key, Verdict: v, Comment: d.name}
}

// internal appends the rows of a ClusterIP.
func (r *renderer) internal(rows []nft.Row, d *dispatch) []nft.Row {
	targets, prefix := d.plan.cluster, affinityPrefix
	if d.policy == PolicyLocal {
		targets, prefix = d.plan.local, affinityLocalPrefix
	}
	switch {
	case len(d.plan.cluster) == 0:
		return append(rows, d.row(d.noEndpoints, nft.VerdictGoto(chainReject)))
	case len(targets) == 0:
		return append(rows, d.row(d.noEndpoints, nft.VerdictDrop))
	}
	rows = append(rows, d.row(d.services, r.choose(d, d.balance, prefix, targets)))
	return r.indexed(rows, d, 0, targets)
}

// outside appends the rows of an external IP, a LoadBalancer IP or a NodePort.
func (r *renderer) outside(rows []nft.Row, d *dispatch) []nft.Row {
	cluster, local := d.plan.cluster, d.plan.local
	if len(cluster) == 0 {
		return append(rows, d.row(d.noEndpoints, nft.VerdictGoto(chainReject)))
	}
	if d.policy == PolicyCluster {
		rows = append(rows, d.row(d.services, r.choose(d, d.masqueraded, affinityExternalPrefix, cluster)))
		return r.indexed(rows, d, 0, cluster)
	}
	// This cluster's pods and this node may use all endpoints, other clients
	// those of this node (see programConfig.localPolicy).
	rows = append(rows,
		nft.Row{Set: d.isLocal, Key: d.key, Comment: d.name},
		nft.Row{Set: d.cluster, Key: d.key, Verdict: r.choose(d, d.balanceAll, affinityPrefix, cluster)})
	rows = r.indexed(rows, d, allOffset, cluster)
	if len(local) == 0 {
		return rows
	}
	rows = append(rows, nft.Row{Set: d.local, Key: d.key, Verdict: r.choose(d, d.balance, affinityLocalPrefix, local)})
	return r.indexed(rows, d, 0, local)
}

// choose returns the verdict that leads to one of the targets: by a balancer, or by the chain of the service port's affinity.
func (r *renderer) choose(d *dispatch, kind balancerKind, affinity string, targets []target) nft.Verdict {
	if d.affinity() != 0 {
		return nft.VerdictGoto(affinity + d.affinityName())
	}
	return nft.VerdictGoto(r.names.get(kind, len(targets)))
}

// indexed appends a frontend's targets, as the balancers look them up.
func (r *renderer) indexed(rows []nft.Row, d *dispatch, offset uint32, targets []target) []nft.Row {
	if d.affinity() != 0 {
		return rows // its chains know the targets
	}
	for i, t := range targets {
		rows = append(rows, nft.Row{
			Set: d.endpoints, Key: d.key.Integer(offset + uint32(i)), Data: nft.Tuple{}.Addr(t.Addr()).Port(t.Port()),
		})
	}
	return rows
}

// firewall appends the sources that may use a LoadBalancer IP.
func (r *renderer) firewall(rows []nft.Row, d *dispatch) []nft.Row {
	if !d.guarded {
		return rows
	}
	rows = append(rows, d.row(r.layout.firewallIPs, nft.VerdictJump(firewallChain(d.proto))))
	for _, p := range d.sources {
		rows = append(rows, nft.Row{
			Set: r.layout.firewallSources[d.proto], Key: nft.Tuple{}.Addr(d.addr).Port(d.servedFrontend.port),
		}.Prefix(p))
	}
	return rows
}

// hairpin appends the endpoints of this node, which can reach themselves.
func (r *renderer) hairpin(rows []nft.Row, p *plan) []nft.Row {
	add := func(t target) {
		rows = append(rows, nft.Row{
			Set: r.layout.hairpin, Key: nft.Tuple{}.Addr(t.Addr()).Addr(t.Addr()).Proto(uint8(p.port.Protocol)).Port(t.Port()),
		})
	}
	if len(p.frontends) == 0 {
		return rows
	}
	inCluster := make(map[target]bool)
	for _, t := range p.cluster {
		if t.here {
			add(t)
			inCluster[t] = true
		}
	}
	for _, t := range p.local {
		if !inCluster[t] {
			add(t)
		}
	}
	return rows
}
