package explain

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/nftproxy/nftproxy/nft/walk"
)

// outcome returns the fate of a path's packet.
func (f *fate) outcome(q *Query) Outcome {
	o := Outcome{Probability: f.Share}
	var by ChainRule
	if f.End.By != nil {
		by = Describe(q.family(), f.End.By.Rule)
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

// Answer returns the outcome in one line, as the result of a packet that has no
// other one.
func (o Outcome) Answer() string { return (&Result{Outcomes: []Outcome{o}}).answer() }

// answer returns the fate in one line.
func (r *Result) answer() string {
	first := r.Outcomes[0]
	for _, o := range r.Outcomes {
		if o.Action != first.Action {
			return "it depends on chance"
		}
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
	for _, o := range r.Outcomes {
		first := r.Outcomes[0]
		if o.Action != first.Action || o.Masqueraded != first.Masqueraded || o.Reason != first.Reason {
			return false
		}
	}
	return true
}
