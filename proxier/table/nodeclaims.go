package table

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// nodeClaims is the part of claims about the addresses of this node. On them
// the NodePorts and health-check NodePorts of all Services, and the ports of
// the proxy itself, have priority over external IPs and LoadBalancer IPs.
// Otherwise a user who may create a Service could take over those ports.
type nodeClaims struct {
	own    []netip.AddrPort         // see Config.OwnPorts
	checks map[uint16]*serviceState // by health-check NodePort
	// addrs are the addresses of this node, and whether NodePorts listen there.
	addrs map[netip.Addr]bool
	// claimed are the addresses of this node at which a service port claims the
	// port of a NodePort.
	claimed map[ruleset.Frontend][]netip.Addr
}

func newNodeClaims(own []netip.AddrPort) nodeClaims {
	return nodeClaims{
		own: own, checks: make(map[uint16]*serviceState), claimed: make(map[ruleset.Frontend][]netip.Addr),
	}
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

// takenByNode returns what takes a frontend of a kind from all service ports
// that claim it. ok is false if they keep it.
func (c *claims) takenByNode(f ruleset.Frontend, kind ruleset.AddressKind) (by holder, ok bool) {
	if f.IsNodePort() || kind == ruleset.ClusterIP {
		return holder{}, false
	}
	listens, local := c.node.addrs[f.Addr]
	if !local {
		return holder{}, false
	}
	if f.Proto == cluster.TCP && slices.ContainsFunc(c.node.own, func(own netip.AddrPort) bool {
		return own.Port() == f.Port && (own.Addr().IsUnspecified() || own.Addr() == f.Addr)
	}) {
		return holder{nil, "the proxy itself"}, true
	}
	if !listens {
		return holder{}, false
	}
	if s := c.node.checks[f.Port]; s != nil && f.Proto == cluster.TCP {
		return holder{s, fmt.Sprintf("the health check of %s", s.name)}, true
	}
	if o, ok := c.owners[nodePort(f)]; ok {
		return holder{o.port.service, fmt.Sprintf("the NodePort of %s", o.port.name())}, true
	}
	return holder{}, false
}

// taken returns the frontends that this node takes, and their best claims.
func (c *claims) taken() iter.Seq2[ruleset.Frontend, claim] {
	return func(yield func(ruleset.Frontend, claim) bool) {
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
		return
	}
	if _, local := c.node.addrs[f.Addr]; local {
		c.node.claimed[nodePort(f)] = append(c.node.claimed[nodePort(f)], f.Addr)
		if _, taken := c.takenByNode(f, kind); taken {
			c.change(c.owners[f].port.service, mark)
		}
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
		c.change(c.owners[ruleset.Frontend{Addr: addr, Port: f.Port, Proto: f.Proto}].port.service, mark)
	}
}

// setCheck sets the health-check NodePort of a Service, from one port to
// another. 0 stands for none.
func (c *claims) setCheck(s *serviceState, from, to uint16, mark marker) {
	if from == to {
		return
	}
	if c.node.checks[from] == s {
		delete(c.node.checks, from)
	}
	if to != 0 {
		c.node.checks[to] = s
	}
	for _, port := range []uint16{from, to} {
		c.nodePortChanged(ruleset.Frontend{Port: port, Proto: cluster.TCP}, mark)
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
			c.change(o.port.service, mark)
		}
	}
}
