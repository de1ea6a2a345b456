package packet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	plain "github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

// prediction is the fate of a packet as package explain predicts it from the
// tables of the nodes on its way.
type prediction struct {
	action explain.Action
	// sources has the source addresses that the possible receivers see, by
	// their address and port.
	sources map[netip.AddrPort]netip.Addr
	last    *explain.Result // of the last node
}

// explained returns an error if the prediction of package explain, or the
// outcome that the oracle allows, differs from the expected outcome, which the
// attempts check.
func (c *check) explained(ctx context.Context) error {
	p, err := c.predict(ctx)
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	who := "explain predicts"
	matches, err := c.matches(ctx, p)
	others := p.last != nil && p.last.Stopped > 0 // of which the oracle does not know
	if err == nil && matches && c.cluster.judged() && !others {
		who = "the oracle allows"
		if p, err = c.follow(func(p *prediction, node *lab.Node) error { return p.allow(c, node) }); err == nil {
			matches, err = c.matches(ctx, p)
		}
	}
	if err != nil || matches {
		return err
	}
	var walk strings.Builder
	if p.last != nil {
		p.last.Print(&walk, true)
	}
	return fmt.Errorf("%s %s to %v, want %v %v\n%s", who, p.action, p.sources, c.want.outcome, c.sources, &walk)
}

// matches reports whether the prediction is the expected outcome. A receiver
// without a server refuses packets itself.
func (c *check) matches(ctx context.Context, p prediction) (bool, error) {
	if r := p.last; r != nil && r.Stopped == len(r.Outcomes) {
		return c.want.outcome != lab.Answered || r.OtherTables[0].Action == node.Translates, nil
	}
	switch {
	case c.want.outcome == lab.Refused && p.action == explain.Reject:
		return true, nil
	case c.want.outcome == lab.TimedOut && p.action == explain.Drop, c.want.lost && p.action == explain.ToEndpoint:
		return true, nil
	case p.action == explain.Pass && c.to.Addr().IsLoopback():
		return true, nil // a program on the node decides
	case c.want.outcome == lab.Answered:
		return maps.Equal(c.serversOf(p.sources), c.sources), nil
	case c.want.lost:
		return false, nil
	case p.action == explain.Pass:
		noServer := len(c.serversOf(p.sources)) == 0
		return noServer == (c.want.outcome == lab.TimedOut), nil
	case p.action == explain.ToEndpoint && c.want.outcome == lab.Refused:
		for to := range p.sources {
			direct := *c
			direct.to = to
			if err := direct.refused(ctx); err != nil {
				return false, fmt.Errorf("predicted endpoint %v: %w", to, err)
			}
		}
		return true, nil
	}
	return false, nil
}

// serversOf returns the source addresses by the names of the receivers, as in
// check.sources.
func (c *check) serversOf(receivers map[netip.AddrPort]netip.Addr) map[string]netip.Addr {
	servers := make(map[string]netip.Addr)
	for receiver, source := range receivers {
		addr := receiver.Addr()
		if addr.IsLoopback() {
			addr = c.origin.Addrs()[c.family]
		}
		if owner := c.cluster.owner(addr, c.family); owner != nil {
			servers[owner.Name] = source
		}
	}
	return servers
}

// owner returns the namespace that has an address, nil if none has it.
func (c *cluster) owner(addr netip.Addr, f family) *lab.Namespace {
	for _, o := range c.origins {
		if o.source(f) == addr {
			return o.Namespace
		}
	}
	return nil
}

// otherTables prints what explain names of other tables, without handles.
func (s *story) otherTables(network, family string, args ...string) (text string, err error) {
	for _, k := range s.expectations(args...) {
		if k.network != network || k.family.String() != family {
			continue
		}
		p, err := k.predict(s.t.Context())
		if err != nil {
			return "", err
		}
		for _, e := range p.last.OtherTables {
			e.Handle = 0
			text += e.String() + "\n"
		}
	}
	return text, nil
}

// predict follows a packet from node to node until it is translated or refused,
// or until it arrives, as package explain predicts it.
func (c *check) predict(ctx context.Context) (prediction, error) {
	return c.follow(func(p *prediction, node *lab.Node) error { return p.explain(ctx, c, node) })
}

// follow is predict with a function that updates the prediction of a packet
// that arrives at a node.
func (c *check) follow(pass func(*prediction, *lab.Node) error) (prediction, error) {
	node, err := c.cluster.firstNode(c.origin.Namespace, c.to.Addr())
	source := c.origin.source(c.family)
	if err == nil && node != nil && node.Namespace == c.origin.Namespace && !c.origin.local[c.family].IsValid() {
		source, err = nodeSource(node, c.to.Addr())
	}
	p := prediction{action: explain.Pass, sources: map[netip.AddrPort]netip.Addr{c.to: source}}
	for err == nil && node != nil && p.action == explain.Pass {
		if err = pass(&p, node); err == nil && p.action == explain.Pass {
			node, err = c.cluster.nextNode(node.Namespace, c.to.Addr())
		}
	}
	return p, err
}

// explain updates the prediction of a packet that arrives at a node. A node
// without a table passes it on.
func (p *prediction) explain(ctx context.Context, c *check, at *lab.Node) error {
	q := explain.Query{Destination: c.to, Protocol: protocolOf(c.network), Source: p.sources[c.to]}
	err := inTable(at, nft.FamilyOf(c.to.Addr()), func(k *node.Kernel) error {
		r, err := explained(ctx, k, q)
		if err == nil {
			*p = predictionOf(r, at.Addrs()[c.family])
		}
		return err
	})
	if errors.Is(err, node.ErrNoTable) {
		return nil
	}
	return err
}

// differenceTime limits the time for which the table in the kernel may differ
// from the one that the proxy wants.
const differenceTime = 10 * time.Second

// explained explains a packet. If a proxy runs on the node, the table in the
// kernel must be the one that it wants.
func explained(ctx context.Context, k *node.Kernel, q explain.Query) (*explain.Result, error) {
	var client socket.Client
	for deadline := time.Now().Add(differenceTime); ; {
		r, err := explain.InKernel(k, q)
		if err != nil {
			return nil, err
		}
		r.AddOthers(k, q)
		desired, err := answer.Explain.AskOne(ctx, &client, q)
		if errors.Is(err, socket.ErrNoProxy) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		if r.Add(desired); r.Difference == nil {
			return r, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the kernel differs from the proxy: %+v", *r.Difference)
		}
	}
}

// predictionOf returns the prediction of one node, which masquerades with its
// address.
func predictionOf(r *explain.Result, node netip.Addr) prediction {
	p := prediction{action: r.Outcomes[0].Action, sources: make(map[netip.AddrPort]netip.Addr), last: r}
	for _, o := range r.Outcomes {
		to, source := o.Endpoint, r.Source
		if o.Action == explain.Pass {
			to = r.Destination
		}
		if o.Masqueraded {
			source = node
		}
		p.sources[to] = source
	}
	return p
}

func protocolOf(network string) plain.Protocol {
	protocol, err := plain.ParseProtocol(network)
	if err != nil {
		panic(err) // the test's own protocol
	}
	return protocol
}

// inTable calls f with the table of a node in the kernel.
func inTable(at *lab.Node, f nft.Family, use func(*node.Kernel) error) error {
	return at.Do(func() error {
		k, err := node.OpenKernel(f)
		if err != nil {
			return err
		}
		defer k.Close()
		return use(k)
	})
}

// nodeSource returns the source address of a node's own packets.
func nodeSource(at *lab.Node, to netip.Addr) (source netip.Addr, err error) {
	err = inTable(at, nft.FamilyOf(to), func(k *node.Kernel) error {
		source, err = k.NodeSource(to)
		return err
	})
	return source, err
}

// indexOf returns the family of an address.
func indexOf(addr netip.Addr) family {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

// firstNode returns the first node that processes a packet from a namespace,
// nil if there is none.
func (c *cluster) firstNode(from *lab.Namespace, to netip.Addr) (*lab.Node, error) {
	for _, pod := range c.pods {
		if pod.Namespace == from {
			return pod.Node, nil
		}
	}
	for _, node := range c.Nodes() {
		if node.Namespace == from {
			return node, nil
		}
	}
	return c.nextNode(from, to)
}

// nextNode returns the node to which a namespace sends a packet, nil if there
// is none.
func (c *cluster) nextNode(from *lab.Namespace, to netip.Addr) (*lab.Node, error) {
	hop := to
	err := from.Do(func() error {
		routes, err := netlink.RouteGet(to.AsSlice())
		if err != nil || len(routes) == 0 {
			return err
		}
		if via, ok := netip.AddrFromSlice(routes[0].Gw); ok {
			hop = via.Unmap()
		}
		return nil
	})
	owner := c.owner(hop, indexOf(to))
	for _, node := range c.Nodes() {
		if node.Namespace == owner && owner != from {
			return node, err
		}
	}
	return nil, err
}
