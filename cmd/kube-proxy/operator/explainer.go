package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// explainer explains packets with the rules in the kernel and, if there is one,
// with the running proxy.
type explainer struct {
	flags   *explainFlags
	client  *socket.Client
	noProxy error // why client is nil
}

// packet is a hypothetical packet whose source is not known yet.
type packet struct {
	to       netip.AddrPort // an invalid address stands for an address of this node
	family   nft.Family     // if the address is invalid
	protocol string
	notes    []string
}

// String returns the destination.
func (p packet) String() string {
	if p.to.Addr().IsValid() {
		return p.to.String()
	}
	return fmt.Sprintf("NodePort %d of %s", p.to.Port(), p.family.Name())
}

// explainService explains packets to the frontends of a Service, and returns
// those that are not selected. It returns an error if it can explain none of
// them.
func (e *explainer) explainService(
	ctx context.Context, s *serviceRef,
) (results []*explain.Result, others []table.FrontendView, err error) {
	if e.noProxy != nil {
		return nil, nil, needsProxy(s, e.noProxy)
	}
	packets, others, err := e.packets(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	var failed []string
	for _, p := range packets {
		r, errExplain := e.explain(ctx, p)
		if errExplain != nil {
			err = cmp.Or(err, errExplain)
			failed = append(failed, fmt.Sprintf("%s is not explained: %v", p, errExplain))
			continue
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return nil, nil, err
	}
	last := results[len(results)-1] // an answer of one family is better than none
	last.Notes = append(last.Notes, failed...)
	return results, others, nil
}

// packets returns a packet to each selected frontend of a Service.
func (e *explainer) packets(
	ctx context.Context, s *serviceRef,
) (packets []packet, others []table.FrontendView, err error) {
	service, err := findService(ctx, e.client, s)
	if err != nil {
		return nil, nil, err
	}
	port, err := s.servicePort(service, e.flags.protocol)
	if err != nil {
		return nil, nil, err
	}
	selected, others := selectFrontends(port.Frontends, e.flags.frontend, !e.flags.set("frontend"))
	for _, f := range selected {
		if p := packetTo(s, &port, &f); e.flags.fromFamily(p.family) {
			packets = append(packets, p)
		}
	}
	switch {
	case len(selected) == 0:
		err = fmt.Errorf("svc/%s has no frontend of kind %s: it has %s", s, e.flags.frontend,
			frontendList(port.Frontends))
	case len(packets) == 0:
		err = fmt.Errorf("svc/%s has no address of the family of --from %s: it has %s", s, e.flags.from,
			frontendList(selected))
	}
	return packets, others, err
}

// packetTo returns a packet to a frontend.
func packetTo(s *serviceRef, port *table.PortView, f *table.FrontendView) packet {
	p := packet{to: netip.AddrPortFrom(f.Address, f.Port), family: f.Family, protocol: port.Protocol.String()}
	for _, addr := range f.Addresses {
		if !addr.IsUnspecified() {
			p.to = netip.AddrPortFrom(addr, f.Port)
			break
		}
	}
	if f.State == table.Conflicting {
		p.notes = append(p.notes, fmt.Sprintf("%s belongs to %s, so Service %s gets no connections there",
			frontendList([]table.FrontendView{*f}), f.Owner, s))
	}
	return p
}

// explain explains a packet.
func (e *explainer) explain(ctx context.Context, p packet) (*explain.Result, error) {
	if p.to.Addr().IsValid() {
		p.family = nft.FamilyOf(p.to.Addr())
	}
	kernel, err := explain.OpenKernel(p.family)
	if err != nil {
		return nil, err
	}
	defer kernel.Close()
	q, err := e.query(kernel, p)
	if err != nil {
		return nil, err
	}
	r, err := kernel.Explain(q)
	if err == nil && e.noProxy == nil {
		r, err = e.compare(ctx, kernel, q, r)
	}
	if err == nil {
		r.Notes = append(p.notes, r.Notes...)
		if e.noProxy != nil {
			r.Notes = append(r.Notes, withoutProxy(e.noProxy))
		}
	}
	return r, err
}

// query returns the question about a packet.
func (e *explainer) query(kernel *explain.Kernel, p packet) (q explain.Query, err error) {
	q = explain.Query{Destination: p.to, Interface: e.flags.iface}
	if q.Protocol, err = cluster.ParseProtocol(p.protocol); err != nil {
		return q, err
	}
	if !p.to.Addr().IsValid() { // a NodePort listens on all addresses of the node
		addr, err := kernel.NodeSource(explain.Outside(p.family))
		if err != nil {
			return q, err
		}
		q.Destination = netip.AddrPortFrom(addr, p.to.Port())
	}
	q.Source, q.From, err = e.flags.source(kernel, q.Destination.Addr())
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
func (e *explainer) compare(
	ctx context.Context, kernel *explain.Kernel, q explain.Query, r *explain.Result,
) (*explain.Result, error) {
	for attempt := 1; ; attempt++ {
		desired, err := e.client.Explain(ctx, q)
		if err != nil {
			r.Notes = append(r.Notes, withoutProxy(err))
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
		if r, err = kernel.Explain(q); err != nil {
			return nil, err
		}
	}
}

// withoutProxy returns the note about a result from the kernel only.
func withoutProxy(err error) string {
	return fmt.Sprintf("The answer is from the kernel only, without unused endpoints: %v", err)
}
