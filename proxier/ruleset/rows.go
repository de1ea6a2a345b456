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
	w := portRows{rules: r, plan: p, name: p.Name(), rows: rows}
	for _, f := range p.Frontends {
		w.begin(f)
		w.addConnections()
		if f.IsClusterIP() {
			w.add(nft.Row{Set: r.layout.clusterIPs, Key: nft.Tuple{}.Addr(f.Addr)})
		}
		w.addDispatch()
		w.addTargets()
		w.addSources()
		w.addLocalhost()
	}
	w.addNumbered()
	w.addHairpin()
	return w.rows
}

// portRows collects the rows of one service port, frontend by frontend.
type portRows struct {
	rules *Ruleset
	plan  *Plan
	name  string
	rows  []nft.Row

	*dispatchSets
	frontend ServedFrontend
	key      nft.Tuple // with which the keys of its rows begin
}

// begin begins the rows of a frontend.
func (w *portRows) begin(f ServedFrontend) {
	w.dispatchSets, w.frontend, w.key = w.rules.layout.setsOf(f.Frontend), f, f.key()
}

func (w *portRows) add(row nft.Row) { w.rows = append(w.rows, row) }

func (w *portRows) addClass(m *nft.Set, c Class, comment string) {
	w.add(nft.Row{Set: m, Key: w.key, Data: c.tuple(), Comment: comment})
}

func (w *portRows) addChain(m *nft.Set, chain string) {
	w.add(nft.Row{Set: m, Key: w.key, Verdict: nft.VerdictGoto(chain), Comment: w.name})
}

// class returns the class of the frontend.
func (w *portRows) class() Class {
	p, f, list := w.plan, w.frontend, w.plan.list(w.frontend.Policy)
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
		return list.class(w.masqueraded)
	}
	if p.guards(f) {
		c |= guardedClass
	}
	return c
}

// addDispatch adds the rows that lead the packets of the frontend to the chain
// that draws an endpoint, or to the one that refuses them.
func (w *portRows) addDispatch() {
	p, f := w.plan, w.frontend
	w.addClass(w.classes, w.class(), w.name)
	reason := p.Reach(f.Policy).Reason
	switch {
	case f.splitsClients() && reason != NoEndpoints:
		// This cluster's pods and this node may use all endpoints, other
		// clients those of this node (see program.localPolicy).
		w.addSplit(w.allClasses, w.allChains, w.all)
		w.addSplit(w.localClasses, w.localChains, w.local)
	case !p.hasChains():
	case reason != "":
		w.addChain(w.noEndpoints, reason.name())
	default:
		w.addChain(w.chains, p.chainName(f.ownKind()))
	}
}

// addSplit adds a row of externalTrafficPolicy Local.
func (w *portRows) addSplit(classes, chains *nft.Set, to chainKind) {
	p, policy := w.plan, to.policy()
	switch reason := p.Reach(policy).Reason; {
	case reason == NoLocalEndpoints: // see program.localPolicy
	case reason != "":
		w.addClass(classes, refusalClasses[reason], "")
	case p.hasChains():
		w.addChain(chains, p.chainName(ownKind(policy)))
	default:
		w.addClass(classes, p.list(policy).class(to), "")
	}
}

// addTargets adds the rows from which balancers draw the frontend's target.
func (w *portRows) addTargets() {
	switch {
	case w.plan.hasChains():
	case w.frontend.splitsClients():
		w.addIndexed(allIndex, cluster.PolicyCluster)
		w.addIndexed(firstIndex, cluster.PolicyLocal)
	default:
		w.addIndexed(firstIndex, w.frontend.Policy)
	}
}

// addIndexed adds the rows of the targets for traffic with a policy.
func (w *portRows) addIndexed(first uint32, policy cluster.Policy) {
	targets := w.plan.Rows(policy)
	w.rows = slices.Grow(w.rows, len(targets))
	for i, t := range targets {
		w.add(nft.Row{Set: w.targets, Key: w.key.Integer(first + uint32(i)), Data: t.data()})
	}
}

// guards reports whether the clients of a frontend are restricted.
func (p *Plan) guards(f ServedFrontend) bool { return p.Guarded && f.Kind == LoadBalancerIP }

// addSources adds the rows of the clients that may use a LoadBalancer IP.
func (w *portRows) addSources() {
	if !w.plan.guards(w.frontend) {
		return
	}
	for _, p := range w.plan.Sources {
		w.add(nft.Row{Set: w.rules.layout.firewallSources[p.Bits()-1], Key: w.key.Addr(p.Addr())})
	}
}

// addLocalhost adds the row of a NodePort that localhost rejects.
func (w *portRows) addLocalhost() {
	f, l := w.frontend, w.rules.layout
	if f.IsNodePort() && slices.Contains(w.rules.config.RejectedOnLocalhost(l.family), f.Proto) {
		w.add(nft.Row{Set: l.localhostNodePorts, Key: w.key, Comment: w.name})
	}
}

// addConnections adds the row that counts the connections to the frontend.
func (w *portRows) addConnections() {
	if w.rules.config.ServiceMetrics.counts(w.plan.Service) {
		w.add(nft.Row{Set: w.connections, Key: w.key, Comment: w.name})
	}
}

// ConnectionRows returns the rows that count the connections to the frontends
// of a service port. A nil plan has none.
func (r *Ruleset) ConnectionRows(p *Plan) []nft.Row {
	if p == nil {
		return nil
	}
	w := portRows{rules: r, plan: p, name: p.Name()}
	for _, f := range p.Frontends {
		w.begin(f)
		w.addConnections()
	}
	return w.rows
}

// addNumbered adds the rows of the targets of a service port with a number.
func (w *portRows) addNumbered() {
	if w.plan.Number == 0 {
		return
	}
	for _, kind := range w.plan.chainKinds() {
		if kind == toExternal { // the rows of toAll
			continue
		}
		first, targets := w.plan.portClass(kind.policy()), w.plan.Rows(kind.policy())
		w.rows = slices.Grow(w.rows, len(targets))
		for i, t := range targets {
			w.add(nft.Row{Set: w.rules.layout.portTargets, Key: (first + Class(i)).tuple(), Data: t.data()})
		}
	}
}

// addHairpin adds the rows of the endpoints on this node. Their connections to
// themselves are masqueraded. Each list has an endpoint once.
func (w *portRows) addHairpin() {
	here := 0
	for _, t := range w.plan.Cluster {
		if t.Here {
			here++
		}
	}
	w.rows = slices.Grow(w.rows, here)
	seen := make(map[Target]bool)
	for _, t := range w.plan.Cluster {
		if !t.Here {
			continue
		}
		if len(w.plan.Local) > 0 {
			seen[t] = true
		}
		w.addHairpinOf(t)
	}
	for _, t := range w.plan.Local {
		if t.Here && !seen[t] {
			w.addHairpinOf(t)
		}
	}
}

func (w *portRows) addHairpinOf(t Target) {
	w.add(nft.Row{Set: w.rules.layout.hairpin, Key: t.hairpinKey(w.plan.Port.Protocol)})
}
