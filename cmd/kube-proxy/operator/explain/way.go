package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/route"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Way is how the kernel sends packets to endpoints, or why it does not.
type Way struct {
	Endpoints []netip.AddrPort `json:"endpoints"`
	// Cause is zero if the packets and their answers arrive, as far as this
	// node can know. Text is then the interface and the next hop.
	Cause ruleset.Reason `json:"cause,omitzero"`
	Text  string         `json:"text"`
}

// maxWays is the number of endpoints whose routes are looked up.
const maxWays = 256

// AddWays adds the ways to the endpoints of a result. Ways with a cause to fail
// come first.
func (r *Result) AddWays(k *node.Kernel, q Query) error {
	p, err := r.packet(k, q)
	if err != nil {
		return err
	}
	survey := route.NewSurvey(k.Routes, "/")
	for _, endpoint := range r.Endpoints() {
		p.Destination = endpoint.Addr()
		facts, err := survey.Facts(p)
		if err != nil {
			return err
		}
		r.addWay(endpoint, &facts)
	}
	slices.SortStableFunc(r.Ways, func(a, b Way) int { return a.rank() - b.rank() })
	return nil
}

// packet returns the packet of a result as the kernel routes it. A hypothetical
// client without a route has no source.
func (r *Result) packet(k *node.Kernel, q Query) (p route.Packet, err error) {
	p.Mark, _ = Mark(k, q)
	if q.Source.IsLoopback() { // the proxy itself connects to the endpoint, from another address
		p.OfNode = true
		return p, nil
	}
	p.Source = q.Source
	if q.Interface != "" {
		if _, err := k.InterfaceIndex(q.Interface); err == nil {
			p.In = q.Interface
		}
		return p, nil
	}
	typ, err := k.RouteType(q.Source)
	if p.OfNode = typ == unix.RTN_LOCAL; p.OfNode || err != nil {
		return p, err
	}
	if p.In, err = k.Interface(q.Source); err != nil {
		p.In = ""
		if r.From != "" {
			p.Source = netip.Addr{}
		}
	}
	return p, nil
}

// Endpoints returns the endpoints of the outcomes, at most maxWays.
func (r *Result) Endpoints() (addrs []netip.AddrPort) {
	for _, o := range r.Outcomes {
		if o.Action == ToEndpoint && !slices.Contains(addrs, o.Endpoint) && len(addrs) < maxWays {
			addrs = append(addrs, o.Endpoint)
		}
	}
	return addrs
}

// addWay adds an endpoint to the way with the same text.
func (r *Result) addWay(endpoint netip.AddrPort, facts *route.Facts) {
	way := Way{Endpoints: []netip.AddrPort{endpoint}, Text: facts.Way()}
	if cause := route.Decide(facts); cause.Code != "" {
		way.Cause, way.Text = cause, cause.Text
	}
	i := slices.IndexFunc(r.Ways, func(w Way) bool { return w.Text == way.Text })
	if i < 0 {
		r.Ways = append(r.Ways, way)
		return
	}
	r.Ways[i].Endpoints = append(r.Ways[i].Endpoints, endpoint)
}

func (w Way) rank() int {
	if w.Cause.Code != "" {
		return 0
	}
	return 1
}

// ways lists the ways to the endpoints.
func (p printer) ways(r *Result) {
	p.list("\nROUTE   ", len(r.Ways), func(i int) (name, text string) {
		w := &r.Ways[i]
		if name = w.Endpoints[0].String(); len(w.Endpoints) > 1 {
			name = fmt.Sprintf("%d endpoints", len(w.Endpoints))
		}
		if text = w.Text + w.Cause.CodeText(); w.Cause.Remedy != "" {
			text += "; remedy: " + w.Cause.Remedy
		}
		return name, text
	})
}
