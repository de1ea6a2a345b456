package trace

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/route"
	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// locate finds the cause for the loss of a packet, or why one that passed all
// chains does not arrive. What cannot be read counts as no cause.
func (k *Packet) locate(p *passage, kernel *node.Kernel, result *explain.Result) {
	q := route.Packet{Source: k.Source.Addr(), OfNode: p.first.In == 0, In: k.Interface, Mark: p.mark}
	switch {
	case k.Final != nil && k.Endpoint.IsValid():
		k.Route = routeCause(kernel, q, k.Endpoint)
	case k.lost != 0:
		e := newEvidence(kernel)
		e.endpoints = []netip.AddrPort{k.Endpoint}
		if !k.Endpoint.IsValid() {
			e.endpoints = result.Endpoints()
			q.Mark, _ = explain.Mark(kernel, k.Query())
		}
		if k.lost == atRouting || k.lost == beforeRouting {
			e.try(kernel, q)
		}
		k.Reason = e.blame(k.lost)
	}
}

// newEvidence returns what the kernel shows without a packet.
func newEvidence(kernel *node.Kernel) (e evidence) {
	usage, err := conntrack.ReadUsage("/")
	e.full = err == nil && usage.Full() >= 1
	tables, _ := xtables.Read()
	e.legacy = slices.ContainsFunc(tables, func(t *xtables.Table) bool {
		return t.Family == kernel.Table.Family && hasRules(t)
	})
	e.ipsec, _ = kernel.HasIPsec()
	return e
}

// hasRules reports whether a table does more than to accept packets.
func hasRules(t *xtables.Table) bool {
	drops := func(c nft.Chain) bool { return c.Hook.Drop }
	return slices.ContainsFunc(t.Base(), drops) || slices.ContainsFunc(t.Chains(), func(chain string) bool {
		rules, err := t.Rules(chain)
		return err == nil && len(rules) > 0
	})
}

// try asks for the routes to the endpoints. If the route to some of them fails,
// the packet was sent to one of these.
func (e *evidence) try(kernel *node.Kernel, q route.Packet) {
	var failing []netip.AddrPort
	for _, endpoint := range e.endpoints {
		cause := routeCause(kernel, q, endpoint)
		if cause.Code == "" {
			continue
		}
		if failing = append(failing, endpoint); len(failing) == 1 {
			e.route = cause
		}
	}
	if len(failing) > 0 {
		e.endpoints = failing
	}
}

// routeCause returns why a packet or the answer to it does not arrive.
func routeCause(kernel *node.Kernel, q route.Packet, endpoint netip.AddrPort) ruleset.Reason {
	q.Destination = endpoint.Addr()
	facts, err := route.NewSurvey(kernel.Routes, "/").Facts(q)
	if err != nil {
		return ruleset.Reason{}
	}
	return route.Decide(&facts)
}
