package table

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// claims decides which service port owns a frontend that several claim. A
// ClusterIP has priority over a LoadBalancer IP, and that over an external IP.
// Among equal kinds the older Service wins, then the first by namespace, name
// and port. If the age of a Service is not known, because no API server created
// it, the service port wins that claimed the frontend first (see keepOwners).
// The other service ports wait. When the owner releases the frontend, the best
// of them becomes the owner. A health-check NodePort claims its port like a
// NodePort. An external IP or a LoadBalancer IP that is an address of this node
// can be taken by a NodePort (see nodeClaims).
type claims struct {
	node    nodeClaims
	owners  map[ruleset.Frontend]claim
	most    int // owners at a time, since they were last compacted
	waiting map[ruleset.Frontend][]claim
	// changed are the Services whose conflicts may have changed since they were
	// last reported. reported are the conflicts of Services then.
	changed  map[*serviceState]struct{}
	reported map[*serviceState]conflicts
}

// claim is the claim of a service port to a frontend. kind is the kind of the
// address for this service port.
type claim struct {
	port *portState
	kind ruleset.AddressKind
}

// marker marks a Service as dirty.
type marker func(*serviceState)

func newClaims(own []netip.AddrPort) claims {
	return claims{
		node:     nodeClaims{own: own, claimed: make(map[ruleset.Frontend][]netip.Addr)},
		owners:   make(map[ruleset.Frontend]claim),
		waiting:  make(map[ruleset.Frontend][]claim),
		changed:  make(map[*serviceState]struct{}),
		reported: make(map[*serviceState]conflicts),
	}
}

// owner returns the service port that owns a frontend, nil if none does.
func (c *claims) owner(f ruleset.Frontend) *portState {
	o := c.owners[f]
	if _, taken := c.takenByNode(f, o.kind); taken || o.port != nil && o.port.check {
		return nil
	}
	return o.port
}

// checkTaken returns what the health-check NodePort of a Service belongs to. ok
// is false if the Service owns it, or has none.
func (c *claims) checkTaken(s *serviceState) (by holder, ok bool) {
	if s.check == nil || len(s.check.wants) == 0 {
		return holder{}, false
	}
	f := s.check.wants[0].Frontend
	by = c.holder(f)
	return by, by.service == nil || c.owners[f].port != s.check
}

// Holder returns the Service that owns a frontend, unless no Service claims it.
func (t *Table) Holder(f ruleset.Frontend) (name cluster.ServiceName, ok bool) {
	if o, ok := t.desired.claims.owners[f]; ok {
		return o.port.service.name, true
	}
	return cluster.ServiceName{}, false
}

// HealthCheck returns the Service that owns a health-check NodePort, and the
// number of endpoints on this node with which it answers.
func (t *Table) HealthCheck(port uint16) (name cluster.ServiceName, endpoints int, ok bool) {
	f := ruleset.Frontend{Port: port, Proto: cluster.TCP}
	o := t.desired.claims.owners[f]
	if o.port == nil || !o.port.check {
		return cluster.ServiceName{}, 0, false
	}
	s := o.port.service
	_, taken := t.desired.claims.checkTaken(s)
	return s.name, s.readyEndpoints(t.desired.node), !taken
}

// Held returns the frontends that a Service owns.
func (t *Table) Held(name cluster.ServiceName) (all []ruleset.Frontend) {
	s := t.desired.services[name]
	if s == nil {
		return nil
	}
	for _, p := range s.ports {
		for _, w := range p.wants {
			if t.desired.claims.owners[w.Frontend].port == p {
				all = append(all, w.Frontend)
			}
		}
	}
	return all
}

// Awaited reports whether a service port waits for a frontend that another one
// owns, or that a NodePort takes from it.
func (t *Table) Awaited(f ruleset.Frontend) bool {
	c := &t.desired.claims
	return len(c.waiting[f])+len(c.node.claimed[f]) > 0
}

// holder returns what a frontend belongs to that a service port claims.
func (c *claims) holder(f ruleset.Frontend) holder {
	o := c.owners[f]
	if by, taken := c.takenByNode(f, o.kind); taken {
		return by
	}
	return holder{o.port.service, o.port.String()}
}

// reassigned marks a Service whose frontends have another owner than before.
func (c *claims) reassigned(s *serviceState, mark marker) {
	c.changed[s] = struct{}{}
	mark(s)
}

// add adds a claim to a frontend.
func (c *claims) add(f ruleset.Frontend, by claim, mark marker) {
	owner, owned := c.owners[f]
	switch {
	case !owned:
		c.owners[f] = by
		c.most = max(c.most, len(c.owners))
		c.addToNode(f, by.kind, mark)
		return
	case owner.port == by.port:
		c.owners[f] = by
		return
	}
	last := by
	if by.compare(owner) < 0 {
		c.owners[f], last = by, owner
	}
	c.waiting[f] = append(c.waiting[f], last)
	c.reassigned(last.port.service, mark)
}

// release removes the claim of a service port to a frontend. If others wait for
// it, the best one becomes the owner.
func (c *claims) release(f ruleset.Frontend, p *portState, mark marker) {
	waiting := c.waiting[f]
	c.changed[p.service] = struct{}{}
	if c.owners[f].port != p {
		c.setWaiting(f, slices.DeleteFunc(waiting, func(w claim) bool { return w.port == p }))
		return
	}
	if len(waiting) == 0 {
		delete(c.owners, f)
		c.compact()
		c.deleteFromNode(f, mark)
		return
	}
	heir := slices.MinFunc(waiting, claim.compare)
	c.owners[f] = heir
	c.setWaiting(f, slices.DeleteFunc(waiting, func(w claim) bool { return w == heir }))
	c.reassigned(heir.port.service, mark)
}

// compact releases memory after the deletion of most frontends, for example
// with a Service that had many external IPs. A map never shrinks.
func (c *claims) compact() {
	const small = 4096
	if c.most > small && len(c.owners) < c.most/4 {
		left := make(map[ruleset.Frontend]claim, len(c.owners)) // maps.Clone would keep the size
		maps.Copy(left, c.owners)
		c.owners, c.most = left, len(left)
	}
}

func (c *claims) setWaiting(f ruleset.Frontend, waiting []claim) {
	if len(waiting) == 0 {
		delete(c.waiting, f)
		return
	}
	c.waiting[f] = waiting
}

// compare orders claims to one frontend. The best comes first. If the age of a
// Service is not known, the result is 0: the first claim is the best.
func (c claim) compare(o claim) int {
	byKind := cmp.Compare(c.kind, o.kind)
	if byKind != 0 || c.port.created.IsZero() || o.port.created.IsZero() {
		return byKind
	}
	return cmp.Or(c.port.created.Compare(o.port.created), comparePorts(c.port, o.port))
}

// undecided returns the frontends of which neither the kind of a claim nor the
// age of a Service determines the owner.
func (c *claims) undecided() (all []ruleset.Frontend) {
	for f, waiting := range c.waiting {
		owner := c.owners[f]
		if slices.ContainsFunc(waiting, func(w claim) bool { return w.compare(owner) == 0 }) {
			all = append(all, f)
		}
	}
	return all
}

// prefer makes the service port that is selected the owner of a frontend,
// unless the present one has a better claim.
func (c *claims) prefer(f ruleset.Frontend, is func(*portState) bool, mark marker) {
	owner, waiting := c.owners[f], c.waiting[f]
	i := slices.IndexFunc(waiting, func(w claim) bool { return is(w.port) && w.compare(owner) == 0 })
	if i < 0 {
		return
	}
	c.owners[f] = waiting[i]
	c.waiting[f] = slices.Insert(slices.Delete(waiting, i, i+1), 0, owner)
	c.reassigned(owner.port.service, mark)
	c.reassigned(c.owners[f].port.service, mark)
}

// nodeClaims is the part of claims about the addresses of this node. On them
// the NodePorts and health-check NodePorts of all Services, and the ports of
// the proxy itself, have priority over external IPs and LoadBalancer IPs.
// Otherwise a user who may create a Service could take over those ports. The
// ports of the proxy also have priority over NodePorts (kubernetes#63617).
type nodeClaims struct {
	own []netip.AddrPort // see Config.OwnPorts
	// addrs are the addresses of this node, and whether NodePorts listen there.
	addrs map[netip.Addr]bool
	// claimed are the addresses of this node at which a service port claims the
	// port of a NodePort.
	claimed map[ruleset.Frontend][]netip.Addr
}

// nodePort returns the NodePort with the port of a frontend.
func nodePort(f ruleset.Frontend) ruleset.Frontend {
	return ruleset.Frontend{Port: f.Port, Proto: f.Proto}
}

// holder is what a frontend belongs to: a service port, or a port of this node.
type holder struct {
	service *serviceState // nil for a port of the proxy itself
	text    string        // namespace/name:port, or a description of the port
}

// isOwn reports whether the proxy itself listens at a frontend. On loopback
// addresses, NodePorts listen where no other program does (see package
// localhost).
func (n *nodeClaims) isOwn(f ruleset.Frontend) bool {
	return f.Proto == cluster.TCP && slices.ContainsFunc(n.own, func(own netip.AddrPort) bool {
		at := own.Addr()
		here := at == f.Addr || f.IsNodePort() && n.addrs[at] && !at.IsLoopback()
		return own.Port() == f.Port && (here || at.IsUnspecified())
	})
}

// takenByNode returns what takes a frontend of a kind from all service ports
// that claim it. ok is false if they keep it.
func (c *claims) takenByNode(f ruleset.Frontend, kind ruleset.AddressKind) (by holder, ok bool) {
	if kind == ruleset.ClusterIP {
		return holder{}, false
	}
	listens, local := c.node.addrs[f.Addr]
	if (local || f.IsNodePort()) && c.node.isOwn(f) {
		return holder{nil, "the proxy itself"}, true
	}
	atPort := nodePort(f)
	o, claimed := c.owners[atPort]
	if !listens || !claimed || c.node.isOwn(atPort) {
		return holder{}, false
	}
	text := o.port.String()
	if !o.port.check {
		text = "the NodePort of " + text
	}
	return holder{o.port.service, text}, true
}

// taken returns the frontends that this node takes, and their best claims.
func (c *claims) taken() iter.Seq2[ruleset.Frontend, claim] {
	return func(yield func(ruleset.Frontend, claim) bool) {
		for _, own := range c.node.own {
			f := ruleset.Frontend{Port: own.Port(), Proto: cluster.TCP}
			if o, claimed := c.owners[f]; claimed && c.node.isOwn(f) && !yield(f, o) {
				return
			}
		}
		for at, addrs := range c.node.claimed {
			for _, addr := range addrs {
				f := ruleset.Frontend{Addr: addr, Port: at.Port, Proto: at.Proto}
				o := c.owners[f]
				if _, taken := c.takenByNode(f, o.kind); taken && !yield(f, o) {
					return
				}
			}
		}
	}
}

// addToNode records that a frontend is claimed.
func (c *claims) addToNode(f ruleset.Frontend, kind ruleset.AddressKind, mark marker) {
	if f.IsNodePort() {
		c.nodePortChanged(f, mark)
	} else if _, local := c.node.addrs[f.Addr]; local {
		c.node.claimed[nodePort(f)] = append(c.node.claimed[nodePort(f)], f.Addr)
	}
	if _, taken := c.takenByNode(f, kind); taken {
		c.reassigned(c.owners[f].port.service, mark)
	}
}

// deleteFromNode records that a frontend is not claimed any more.
func (c *claims) deleteFromNode(f ruleset.Frontend, mark marker) {
	if f.IsNodePort() {
		c.nodePortChanged(f, mark)
		return
	}
	if _, local := c.node.addrs[f.Addr]; !local {
		return
	}
	key := nodePort(f)
	rest := slices.DeleteFunc(c.node.claimed[key], func(a netip.Addr) bool { return a == f.Addr })
	if c.node.claimed[key] = rest; len(rest) == 0 {
		delete(c.node.claimed, key)
	}
}

// nodePortChanged marks the owners of the frontends that a NodePort takes, or
// no longer takes.
func (c *claims) nodePortChanged(f ruleset.Frontend, mark marker) {
	for _, addr := range c.node.claimed[f] {
		c.reassigned(c.owners[ruleset.Frontend{Addr: addr, Port: f.Port, Proto: f.Proto}].port.service, mark)
	}
}

// setNodeAddrs sets the addresses of this node, and those on which NodePorts
// listen: all, if the unspecified address is among them.
func (c *claims) setNodeAddrs(addrs, nodePorts []netip.Addr, mark marker) {
	now := make(map[netip.Addr]bool, len(addrs)+len(nodePorts))
	all := slices.ContainsFunc(nodePorts, netip.Addr.IsUnspecified)
	for _, a := range addrs {
		now[a] = all
	}
	for _, a := range nodePorts {
		now[a] = true
	}
	before := c.node.addrs
	if maps.Equal(before, now) {
		return
	}
	c.node.addrs, c.node.claimed = now, make(map[ruleset.Frontend][]netip.Addr)
	for f, o := range c.owners {
		listened, wasLocal := before[f.Addr]
		listens, local := now[f.Addr]
		if local && !f.IsNodePort() {
			c.node.claimed[nodePort(f)] = append(c.node.claimed[nodePort(f)], f.Addr)
		}
		if local != wasLocal || listens != listened {
			c.reassigned(o.port.service, mark)
		}
	}
	for _, own := range c.node.own { // it can have become the owner of a NodePort
		f := ruleset.Frontend{Port: own.Port(), Proto: cluster.TCP}
		if o, claimed := c.owners[f]; claimed {
			c.reassigned(o.port.service, mark)
			c.nodePortChanged(f, mark)
		}
	}
}

// conflicts are the frontends that a Service claims without owning them, by the
// name of the Service that they belong to. The proxy itself has no name.
type conflicts map[cluster.ServiceName]conflict

// conflict is a number of frontends, and one of them as an example.
type conflict struct {
	n int
	ruleset.Frontend
	loser  *portState
	holder string
}
