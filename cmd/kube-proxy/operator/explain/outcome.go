package explain

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// fate is a path of a packet that ended.
type fate struct {
	*walk.Path
	dispatched walk.End  // at the hook prerouting or output
	rows       []nft.Row // that rules found there
}

// outcome returns the fate of a path's packet.
func (f *fate) outcome(q *Query) Outcome {
	o := Outcome{Probability: f.Share}
	var by node.ChainRule
	if f.End.By != nil {
		by = node.Describe(q.family(), f.End.By.Rule)
	}
	switch {
	case f.End.Action == walk.Rejected:
		o.Action, o.RejectWith = Reject, by.RejectWith
	case f.End.Action == walk.Dropped:
		o.Action = Drop
	case f.dispatched.To.IsValid():
		o.Action, o.Endpoint = ToEndpoint, f.dispatched.To
		o.Affinity = f.affinity()
	default:
		o.Action = Pass
	}
	o.Masqueraded = by.Masquerades
	switch {
	case o.Action != ToEndpoint:
		o.Reason = f.refusal(q)
	case o.Masqueraded:
		o.Reason = f.masquerade()
	}
	return o
}

// affinity returns "known" for a client whom session affinity knows, "new" for
// one that it will know. A rule looks up a known client and ends the path. The
// client of an endpoint that is gone can have rows, too.
func (f *fate) affinity() string {
	dynamic := func(l walk.Lookup) bool { return l.Found.Set != nil && l.Found.Set.Dynamic }
	switch {
	case slices.ContainsFunc(f.dispatched.By.Lookups, dynamic):
		return "known"
	case len(f.Updated) > 0:
		return "new"
	}
	return ""
}

// add adds an outcome. Those that differ in their probability only become one:
// known has their indexes.
func (r *Result) add(o Outcome, known map[Outcome]int) {
	key := o
	key.Probability = nil
	if i, ok := known[key]; ok {
		r.Outcomes[i].Probability = new(big.Rat).Add(r.Outcomes[i].Probability, o.Probability)
		return
	}
	known[key] = len(r.Outcomes)
	r.Outcomes = append(r.Outcomes, o)
}

// conclude sets the answer and the remedy.
func (r *Result) conclude() {
	if r.Answer, r.Remedy = r.answer(), ""; r.alike() && r.Outcomes[0].Action != ToEndpoint {
		r.Remedy = r.Outcomes[0].Reason.Remedy
	}
}

// Answer returns the outcome in one line, as the result of a packet that has no
// other one.
func (o Outcome) Answer() string { return (&Result{Outcomes: []Outcome{o}}).answer() }

// answer returns the fate in one line.
func (r *Result) answer() string {
	first := r.Outcomes[0]
	if slices.ContainsFunc(r.Outcomes, func(o Outcome) bool { return o.Action != first.Action }) {
		return "it depends on chance"
	}
	switch first.Action {
	case Reject:
		return fmt.Sprintf("rejected (%s): %s", first.RejectWith, first.Reason.Text)
	case Drop:
		return "dropped: " + first.Reason.Text
	case Pass:
		return "not translated: " + first.Reason.Text
	}
	return r.endpoints()
}

func (r *Result) endpoints() string {
	first := r.Outcomes[0]
	text := fmt.Sprintf("one of %d endpoints, ", len(r.Outcomes))
	if len(r.Outcomes) == 1 {
		text = fmt.Sprintf("endpoint %s, ", first.Endpoint)
	}
	if r.alike() {
		text += first.sourceAddress()
	} else {
		text += "source address masqueraded for some"
	}
	if first.Affinity != "" {
		text += fmt.Sprintf("; session affinity: a %s client", first.Affinity)
	}
	return text
}

// code returns the code of the answer, unless the outcomes differ in it.
func (r *Result) code() string {
	if !r.alike() {
		return ""
	}
	return r.Outcomes[0].Reason.CodeText()
}

// sourceAddress returns what happens to the source address, or the reason of a
// refusal.
func (o *Outcome) sourceAddress() string {
	switch {
	case o.Masqueraded:
		return "source address masqueraded: " + o.Reason.Text
	case o.Action == ToEndpoint:
		return "source address kept"
	}
	return o.Reason.Text
}

// alike reports whether the outcomes differ in the endpoint only.
func (r *Result) alike() bool {
	first := r.Outcomes[0]
	return !slices.ContainsFunc(r.Outcomes, func(o Outcome) bool {
		return o.Action != first.Action || o.Masqueraded != first.Masqueraded || o.Reason != first.Reason
	})
}

// servicePort returns the name of the service port that a path's packet is for:
// the comment of the last dispatch row.
func (f *fate) servicePort() (name string) {
	for _, row := range f.rows {
		name = cmp.Or(row.Comment, name)
	}
	return name
}

// refusal returns the reason why a path does not end at an endpoint. It follows
// from the rule that ended the path and from the last row that it found.
func (f *fate) refusal(q *Query) ruleset.Reason {
	end := f.dispatched
	if f.End.Action != walk.Accepted {
		end = f.End
	}
	facts := ruleset.Facts{
		Source: q.Source, Destination: q.Destination, Protocol: cluster.Protocol(q.Protocol),
		ServicePort: f.servicePort(),
	}
	if n := len(f.rows); n > 0 {
		facts.Target = f.rows[n-1].Verdict.Chain()
	}
	if end.By != nil {
		facts.Chain = end.By.Chain
	}
	if r, ok := f.counted(end.Action); ok {
		// A packet that a dispatch row leads to a balancer without its row is
		// not translated. If it is for a ClusterIP, it is rejected.
		if facts.ServicePort != "" && (r == ruleset.UnknownPort || r == ruleset.UnallocatedAddress) {
			r = ruleset.Damaged
		}
		return r.Reason(facts)
	}
	switch {
	case ruleset.RejectsOnLocalhost(facts.Chain):
		return ruleset.Localhost.Reason(facts)
	case facts.Chain != "":
		return ruleset.Unexplained.Reason(facts)
	case q.Destination.Addr().IsLoopback():
		return ruleset.Localhost.Reason(facts)
	case facts.ServicePort != "":
		return ruleset.Damaged.Reason(facts)
	}
	return ruleset.NoService.Reason(facts)
}

// counted returns the reason for which a packet was counted before it was
// rejected or dropped.
func (f *fate) counted(end walk.Action) (r ruleset.Code, ok bool) {
	r, ok = ruleset.RefusalOf(f.Counter)
	return r, ok && (end == walk.Rejected && r.Rejects() || end == walk.Dropped && !r.Rejects())
}

// masquerade returns the reason why a path's packet is masqueraded. It follows
// from the rule that marked the packet, or from the rule that masquerades it.
func (f *fate) masquerade() ruleset.Reason {
	by := cmp.Or(f.Marked, f.End.By)
	code := cmp.Or(ruleset.MasqueradeBy(by.Chain, by.Rule.Comment), ruleset.Unexplained)
	return code.Reason(ruleset.Facts{Chain: by.Chain, Masqueraded: true})
}
