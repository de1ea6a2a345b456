package ruleset

import (
	"encoding/binary"
	"net/netip"
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
	w := portRows{rules: r, plan: p, name: p.Name().String(), rows: rows}
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
	w := portRows{rules: r, plan: p, name: p.Name().String()}
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

// Functions of this file encode and decode the keys and the data of rows.

// key returns the fields with which the keys of a frontend's rows begin: the
// VIP, the protocol and the port, or the protocol and the NodePort.
func (f Frontend) key() (key nft.Tuple) {
	if !f.IsNodePort() {
		key = key.Addr(f.Addr)
	}
	return key.Proto(uint8(f.Proto)).Port(f.Port)
}

// data returns the target as the data of a row.
func (t Target) data() nft.Tuple { return nft.Tuple{}.Addr(t.Addr).Port(t.Port) }

// hairpinKey returns the key of the connections of the target to itself.
func (t Target) hairpinKey(p cluster.Protocol) nft.Tuple {
	return nft.Tuple{}.Addr(t.Addr).Addr(t.Addr).Proto(uint8(p)).Port(t.Port)
}

// fields are the fields of a key or of data that are not decoded yet.
type fields struct {
	rest    []byte
	missing bool
}

func fieldsOf(t nft.Tuple) *fields { return &fields{rest: t.Bytes()} }

// next returns the bytes of the next field: zeros if it is missing.
func (f *fields) next(size int) []byte {
	const unit = 4 // the room of a field is a multiple
	room := (size + unit - 1) / unit * unit
	if len(f.rest) < room {
		f.missing = true
		return make([]byte, size)
	}
	field := f.rest[:size]
	f.rest = f.rest[room:]
	return field
}

func (f *fields) addr(family nft.Family) netip.Addr {
	addr, _ := netip.AddrFromSlice(f.next(family.AddrLen()))
	return addr
}

func (f *fields) port() uint16 { return binary.BigEndian.Uint16(f.next(2)) }

// frontend decodes the fields of a VIP or of a NodePort (see Frontend.key).
func (f *fields) frontend(family nft.Family, isVIP bool) (from Frontend) {
	if isVIP {
		from.Addr = f.addr(family)
	}
	from.Proto = cluster.Protocol(f.next(1)[0])
	from.Port = f.port()
	return from
}

// FrontendOf returns the frontend whose service port has the row of a set with
// this key. ok is false if the rows of the set do not belong to frontends.
func (r *Ruleset) FrontendOf(set *nft.Set, key nft.Tuple) (f Frontend, ok bool) {
	l, fields := r.layout, fieldsOf(key)
	isVIP := slices.Contains(l.firewallSources, set) || slices.Contains(l.vips.sets(), set)
	isNodePort := set == l.localhostNodePorts || slices.Contains(l.nodePorts.sets(), set)
	if !isVIP && !isNodePort || set == l.vips.classChains || set == l.nodePorts.classChains {
		return f, false
	}
	f = fields.frontend(l.family, isVIP)
	return f, !fields.missing
}

// SharedAddr returns the address that all rows of a shared set with this key
// are about (see IsShared): a ClusterIP, or the address of an endpoint. ok is
// false if the set is not shared, or if no row has such a key.
func (r *Ruleset) SharedAddr(set *nft.Set, key nft.Tuple) (addr netip.Addr, ok bool) {
	fields := fieldsOf(key)
	addr = fields.addr(r.layout.family)
	if set == r.layout.hairpin { // the same address is source and destination
		return addr, addr == fields.addr(r.layout.family)
	}
	return addr, r.IsShared(set)
}

// TargetOf returns the frontend and the target of a row of OwnSet.
func TargetOf(f nft.Family, row nft.Row) (from Frontend, to netip.AddrPort, ok bool) {
	key, data := fieldsOf(row.Key), fieldsOf(row.Data)
	from = key.frontend(f, true)
	addr := data.addr(f)
	return from, netip.AddrPortFrom(addr, data.port()), !key.missing && !data.missing
}

// NodePortOf returns the NodePort of a row of NodePortSet.
func NodePortOf(row nft.Row) (port uint16, ok bool) {
	key := fieldsOf(row.Key)
	return key.frontend(0, false).Port, !key.missing
}

// ClassRow returns the key of the row that has the class of a frontend. The
// comment of the row in the kernel is the name of its service port.
func (r *Ruleset) ClassRow(f Frontend) nft.Row {
	return nft.Row{Set: r.layout.setsOf(f).classes, Key: f.key()}
}

// ClassOf returns the class that is the data of a row, 0 for a row of another
// set.
func (r *Ruleset) ClassOf(row nft.Row) Class {
	v, n := &r.layout.vips, &r.layout.nodePorts
	switch row.Set {
	case v.classes, v.localClasses, v.allClasses, n.classes, n.localClasses, n.allClasses:
		return classIn(row.Data)
	}
	return 0
}

// BalancerOf returns the class whose row Balancer returns for a key of a set.
// ok is false if the set or the key is another one.
func (r *Ruleset) BalancerOf(set *nft.Set, key nft.Tuple) (c Class, ok bool) {
	l := r.layout
	if set != l.vips.classChains && set != l.nodePorts.classChains && set != l.localClassChains {
		return 0, false
	}
	c = classIn(key)
	return c, c.IsBalancer() && set == l.chainsOf(c)
}

// NumberOf returns the number of the service port that has the row of a set
// with this key, 0 if the rows of the set do not belong to numbers.
func (r *Ruleset) NumberOf(set *nft.Set, key nft.Tuple) uint32 {
	if set != r.layout.portTargets {
		return 0
	}
	return classIn(key).number()
}

// IsIndexed reports whether the keys of a set end with the index of a target.
func (r *Ruleset) IsIndexed(set *nft.Set) bool {
	l := r.layout
	return set == l.vips.targets || set == l.nodePorts.targets || set == l.portTargets
}

// IsVital reports whether new connections fail if the rows of a set are
// missing: a packet to most frontends looks one up.
func (r *Ruleset) IsVital(set *nft.Set) bool {
	for _, d := range []*dispatchSets{&r.layout.vips, &r.layout.nodePorts} {
		if set == d.classes || set == d.classChains {
			return true
		}
	}
	return r.IsIndexed(set)
}

// After returns the keys of targets that a row leads to: the first targets of a
// frontend, or the target after another one.
func (r *Ruleset) After(row nft.Row) []nft.Row {
	for _, d := range []*dispatchSets{&r.layout.vips, &r.layout.nodePorts} {
		if row.Set == d.classes {
			return []nft.Row{
				{Set: d.targets, Key: row.Key.Integer(firstIndex)}, {Set: d.targets, Key: row.Key.Integer(allIndex)},
			}
		}
	}
	if key := row.Key.Bytes(); r.IsIndexed(row.Set) && len(key) >= 4 {
		n := len(key) - 4
		next := binary.NativeEndian.Uint32(key[n:]) + 1
		return []nft.Row{{Set: row.Set, Key: nft.Tuple{}.Raw(key[:n]).Integer(next)}}
	}
	return nil
}
