package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// packet is a hypothetical packet whose source is not known yet.
type packet struct {
	to       netip.AddrPort // an invalid address stands for an address of this node
	family   nft.Family
	protocol cluster.Protocol
	notes    []string
}

// String returns the destination.
func (p packet) String() string {
	if p.to.Addr().IsValid() {
		return p.to.String()
	}
	return fmt.Sprintf("NodePort %d of %s", p.to.Port(), p.family.Name())
}

// explainAll explains packets. It returns an error if it can explain none of
// them.
func (f *explainFlags) explainAll(ctx context.Context, packets []packet) (results []*explain.Result, err error) {
	var failed []string
	for _, p := range packets {
		r, errExplain := f.explain(ctx, p)
		if errExplain != nil {
			err = cmp.Or(err, errExplain)
			failed = append(failed, fmt.Sprintf("%s is not explained: %v", p, errExplain))
			continue
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return nil, err
	}
	last := results[len(results)-1] // an answer of one family is better than none
	last.Notes = append(last.Notes, failed...)
	return results, nil
}

// packets returns a packet to an address, or to each selected frontend of a
// Service, and the other frontends.
func (f *explainFlags) packets(
	ctx context.Context, to destination,
) (packets []packet, others []table.FrontendView, err error) {
	s := to.service
	if s == nil {
		for _, at := range to.at {
			p := packet{to: at.Address, family: nft.FamilyOf(at.Address.Addr())}
			if p.protocol = cmp.Or(f.protocol, at.Protocol, cluster.TCP); len(to.at) == 1 || f.fromFamily(p.family) {
				packets = append(packets, p)
			}
		}
		if len(packets) == 0 {
			err = fmt.Errorf("%s has no address of the family of --from %s", to.pod, f.from)
		}
		return packets, nil, err
	}
	ports, _, err := f.servicePorts(ctx, s)
	switch {
	case err != nil:
		return nil, nil, err
	case len(ports) > 1 && s.port == "":
		return nil, nil, fmt.Errorf("svc/%s has several ports: %s; give one as svc/%s:PORT", s, portList(ports), s)
	case len(ports) > 1:
		return nil, nil, fmt.Errorf("svc/%s has several ports with number %s: %s; give a name or --protocol", s, s.port,
			portList(ports))
	}
	port := &ports[0]
	selected, others := selectFrontends(port.Frontends, f.frontend, !f.set("frontend"))
	for i := range selected {
		if p := packetTo(s, port, &selected[i]); f.fromFamily(p.family) {
			packets = append(packets, p)
		}
	}
	switch {
	case len(selected) == 0:
		err = fmt.Errorf("svc/%s has no frontend of kind %s: it has %s", s, f.frontend,
			frontendList(port.Frontends))
	case len(packets) == 0:
		err = fmt.Errorf("svc/%s has no address of the family of --from %s: it has %s", s, f.from,
			frontendList(selected))
	}
	return packets, others, err
}

// packetTo returns a packet to a frontend.
func packetTo(s *serviceRef, port *table.PortView, f *table.FrontendView) packet {
	p := packet{to: netip.AddrPortFrom(f.Address, f.Port), family: f.Family, protocol: port.Protocol}
	for _, addr := range f.Addresses {
		if !addr.IsUnspecified() {
			p.to = netip.AddrPortFrom(addr, f.Port)
			break
		}
	}
	if f.State == ruleset.Conflict {
		p.notes = append(p.notes, fmt.Sprintf("%s belongs to %s, so Service %s gets no connections there",
			frontendList([]table.FrontendView{*f}), f.Owner, s))
	}
	return p
}

// explain explains a packet.
func (f *explainFlags) explain(ctx context.Context, p packet) (*explain.Result, error) {
	kernel, err := node.OpenKernel(p.family)
	if err != nil {
		return nil, err
	}
	defer kernel.Close()
	q, err := f.query(kernel, p)
	if err != nil {
		return nil, err
	}
	r, err := explain.InKernel(kernel, q)
	if err == nil {
		r, err = f.compare(ctx, kernel, q, r)
	}
	if err == nil {
		err = r.AddWays(kernel, q)
	}
	if err == nil {
		r.AddOthers(kernel, q)
		r.Notes = append(p.notes, r.Notes...)
	}
	return r, err
}

// query returns the question about a packet.
func (f *explainFlags) query(kernel *node.Kernel, p packet) (q explain.Query, err error) {
	q = explain.Query{Destination: p.to, Protocol: p.protocol, Interface: f.iface}
	if !p.to.Addr().IsValid() { // a NodePort listens on all addresses of the node
		addr, err := kernel.NodeSource(node.Outside(p.family))
		if err != nil {
			return q, err
		}
		q.Destination = netip.AddrPortFrom(addr, p.to.Port())
	}
	q.Source, q.From, err = f.source(kernel, q.Destination.Addr())
	return q, err
}

// Differences between the kernel and the proxy can end at once: a change that
// is being written, or a repair. So the kernel is read again a few times.
const (
	compareAttempts = 4
	compareDelay    = 100 * time.Millisecond
)

// compare adds what the proxy knows to a result. It returns a newer result if
// the first one differs from what the proxy wants.
func (f *explainFlags) compare(
	ctx context.Context, kernel *node.Kernel, q explain.Query, r *explain.Result,
) (*explain.Result, error) {
	for attempt := 1; ; attempt++ {
		desired, err := answer.Explain.AskOne(ctx, &f.client, q)
		if err != nil {
			r.Notes = append(r.Notes,
				fmt.Sprintf("The answer is from the kernel only, without unused endpoints: %v", err))
			return r, nil
		}
		r.Add(desired)
		if r.Difference == nil || attempt == compareAttempts {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, nil
		case <-time.After(compareDelay):
		}
		if r, err = explain.InKernel(kernel, q); err != nil {
			return nil, err
		}
	}
}

// source returns the source address, and its kind if --from does not name an
// address.
func (f *explainFlags) source(k *node.Kernel, to netip.Addr) (addr netip.Addr, kind string, err error) {
	if to.IsLoopback() && f.from != "" && f.from != node.FromNode {
		return addr, "", misusef("--from %s: only this node can send packets to %s", f.from, to)
	}
	switch f.from {
	case "":
		return k.DefaultSource(to)
	case node.FromPod:
		addr, ok, err := k.PodAddress()
		if err == nil && !ok {
			err = fmt.Errorf("--from pod: the rules do not recognize pods by a range of addresses: give the address " +
				"of a pod")
		}
		return addr, node.FromPod, err
	case node.FromNode:
		addr, err = k.NodeSource(to)
		return addr, node.FromNode, err
	case node.FromOutside:
		return node.Outside(nft.FamilyOf(to)), node.FromOutside, nil
	}
	if len(f.sources) == 0 {
		return addr, "", misusef("--from %q is not an address, pod/NAMESPACE/NAME, pod, node or outside", f.from)
	}
	addr = f.sources[0] // an address of the other family is an error
	for _, s := range f.sources {
		if nft.FamilyOf(to).Of(s) {
			addr = s
		}
	}
	return addr, "", nil
}

// fromFamily reports whether the source can be of a family: --from has not only
// addresses of the other one.
func (f *explainFlags) fromFamily(family nft.Family) bool {
	return len(f.sources) == 0 || slices.ContainsFunc(f.sources, family.Of)
}
