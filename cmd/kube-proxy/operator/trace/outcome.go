package trace

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// readRule returns the rule of an event.
type readRule func(notify.TraceEvent) node.ChainRule

// isProxy reports whether an event is of the proxy's table.
func isProxy(e notify.TraceEvent) bool { return e.Table == ruleset.TableName && e.Family.Valid() }

// packetOf returns the packet of a passage, without what explained adds, and
// without names of interfaces.
func packetOf(p *passage, read readRule) *Packet {
	k := &Packet{
		Time: p.began, Protocol: cluster.Protocol(p.first.Protocol).String(), Source: p.first.Source,
		Destination: p.first.Destination, Hook: nft.Prerouting.String(), Repeated: true,
	}
	if p.first.In == 0 {
		k.Hook = nft.Output.String()
	}
	dispatching := []string{ruleset.BaseChainName(nft.Prerouting), ruleset.BaseChainName(nft.Output)}
	var rule node.ChainRule // the last one
	translated := false
	for _, e := range p.events {
		if rule = (node.ChainRule{}); e.Type == notify.TraceRule {
			rule = read(e)
		}
		if isProxy(e) {
			k.Repeated = k.Repeated && !slices.Contains(dispatching, e.Chain)
			k.Masqueraded = k.Masqueraded || rule.Masquerades
			translated = translated || rule.Translates
		}
		k.Steps = append(k.Steps, Step{Table: e.Family.String() + " " + e.Table, Chain: e.Chain, Handle: e.Rule,
			Rule: rule.Text, Verdict: e.Verdict.String()})
	}
	if translated && p.toRouting || p.last.Destination != p.first.Destination {
		k.Endpoint = p.last.Destination
	}
	switch p.end {
	case passed:
		k.arrive(p, translated)
	case stopped:
		k.stop(p.events[len(p.events)-1], rule.RejectWith)
	default:
		k.vanish(p)
	}
	return k
}

// arrive sets the fate of a packet that passed all chains.
func (k *Packet) arrive(p *passage, translated bool) {
	k.Final = &Final{Source: p.last.Source, Destination: p.last.Destination}
	k.Action = explain.Pass
	switch {
	case k.Endpoint.IsValid() && (translated || k.Repeated):
		k.Action = explain.ToEndpoint
	case k.Endpoint.IsValid():
		k.Reason = ruleset.OtherTable.With("another program translates the packet to " + k.Endpoint.String())
		k.Endpoint = netip.AddrPort{}
	case k.Repeated:
		k.Reason = ruleset.Untranslated.Reason(ruleset.Facts{})
	}
	if k.Repeated && k.Action == explain.ToEndpoint {
		k.Reason = ruleset.Unanswered.Reason(ruleset.Facts{})
	}
}

// atEndpoint completes a packet that arrived for an endpoint on this node. The
// rules of the proxy do not decide about it.
func (k *Packet) atEndpoint(servicePort string) {
	k.AtEndpoint, k.ServicePort, k.Repeated = true, servicePort, false
	if k.Action == explain.Pass {
		k.Action, k.Endpoint, k.Reason = explain.ToEndpoint, k.Destination, ruleset.Reason{}
	}
}

// stop sets the fate of a packet that a rule or policy stopped.
func (k *Packet) stop(e notify.TraceEvent, rejectWith string) {
	k.Repeated = k.Repeated && k.Endpoint.IsValid() // otherwise the packet was stopped before the proxy's rules
	k.Action = explain.Drop
	switch {
	case e.Verdict == nft.VerdictStolen:
		k.Action = Taken
	case rejectWith != "":
		k.Action, k.RejectWith = explain.Reject, rejectWith
	}
	if !isProxy(e) {
		k.Reason = k.byOthers()
	}
}

// byOthers is the reason of a packet that a rule or policy of another table
// stopped, which is the last step.
func (k *Packet) byOthers() ruleset.Reason {
	s, text := k.Steps[len(k.Steps)-1], k.lastStep()
	if name, ok := node.PolicyOf(s.Table, s.Chain, s.Rule); ok {
		return ruleset.NetworkPolicy.Reason(ruleset.Facts{Trace: text + "; it looks like " + name})
	}
	return ruleset.OtherTable.Reason(ruleset.Facts{Trace: text})
}

// lastStep describes the last rule or policy, of another table.
func (k *Packet) lastStep() string {
	s := k.Steps[len(k.Steps)-1]
	text := fmt.Sprintf("by table %s, chain %s: %s", s.Table, s.Chain, s)
	if k.Endpoint.IsValid() {
		return fmt.Sprintf("on the way to endpoint %s %s", k.Endpoint, text)
	}
	return text
}

// vanish sets the fate of a packet that no chain reports any more.
func (k *Packet) vanish(p *passage) {
	k.Action = Lost
	if n := len(p.events); n > 0 && p.events[n-1].Verdict == nft.VerdictQueue {
		k.Action, k.Reason = Taken, k.byOthers()
		return
	}
	switch {
	case p.leftRouting:
		k.lost = afterRouting
	case p.toRouting:
		k.lost = atRouting
	case k.Repeated: // no chain of the proxy
		k.lost = beforeRules
	default:
		k.lost = beforeRouting
	}
	k.Repeated = false
}

// explained completes a packet with the reasons of package explain.
func (k *Packet) explained(r *explain.Result) {
	if k.AtEndpoint {
		return
	}
	k.ServicePort = r.ServicePort
	if k.Repeated || k.Reason.Code != "" || k.Action == Lost {
		return
	}
	for _, o := range r.Outcomes {
		if k.is(o) {
			k.Reason = o.Reason
			return
		}
	}
	k.Explain = r.Answer
	k.Reason = ruleset.Unexplained.Reason(ruleset.Facts{Chain: k.lastChain()})
}

// untracked names the rule that excludes a packet from connection tracking, if
// there is one: no chain reports it.
func (k *Packet) untracked(effects []node.Effect) {
	isRule := func(e node.Effect) bool { return e.Action == node.Untracks && e.Certain }
	if i := slices.IndexFunc(effects, isRule); i >= 0 {
		k.Reason = ruleset.OtherTable.Reason(ruleset.Facts{Trace: effects[i].String()})
	}
}

// Query returns the question about a hypothetical packet like this one.
func (k *Packet) Query() explain.Query {
	return explain.Query{
		Destination: k.Destination, Protocol: k.protocol, Source: k.Source.Addr(), Interface: k.Interface,
	}
}

// Lacks reports whether the packet was refused because the Service has no
// endpoint for it. Refine then makes the reason more precise.
func (k *Packet) Lacks() bool {
	return slices.Contains([]ruleset.Code{ruleset.NoEndpoints, ruleset.NoLocalEndpoints, ruleset.NoWeight},
		k.Reason.Code)
}

// Refine replaces the reason by a more precise one.
func (k *Packet) Refine(lack *ruleset.Lack) {
	k.Reason.Refine(lack)
	k.Answer = k.answer()
}

// lastChain returns the chain of the last rule of the proxy, "" if there is
// none.
func (k *Packet) lastChain() string {
	for _, s := range slices.Backward(k.Steps) {
		if s.isProxy() {
			return s.Chain
		}
	}
	return ""
}

// is reports whether the packet had an outcome.
func (k *Packet) is(o explain.Outcome) bool {
	return k.Action == o.Action && k.Endpoint == o.Endpoint && k.Masqueraded == o.Masqueraded &&
		k.RejectWith == o.RejectWith
}

// ofOthers reports whether another table stopped the packet.
func (k *Packet) ofOthers() bool {
	return k.Reason.Code == ruleset.OtherTable || k.Reason.Code == ruleset.NetworkPolicy
}

// answer returns the fate in one line.
func (k *Packet) answer() string {
	switch {
	case k.Action == Lost:
		return "lost " + k.Reason.Text
	case k.Action == Taken:
		return "taken " + k.Reason.Text
	case k.ofOthers() && k.Action == explain.Drop:
		return "dropped " + k.Reason.Text
	case k.ofOthers() && k.Action == explain.Reject:
		return fmt.Sprintf("rejected (%s) %s", k.RejectWith, k.Reason.Text)
	case k.AtEndpoint && k.Action == explain.ToEndpoint:
		return fmt.Sprintf("endpoint %s on this node: another node translated the packet, or the client connected to "+
			"the endpoint itself", k.Endpoint)
	case k.Repeated && k.Action == explain.ToEndpoint:
		return fmt.Sprintf("endpoint %s again: %s", k.Endpoint, k.Reason.Text)
	}
	return explain.Outcome{
		Action: k.Action, Endpoint: k.Endpoint, Masqueraded: k.Masqueraded, RejectWith: k.RejectWith, Reason: k.Reason,
	}.Answer()
}
