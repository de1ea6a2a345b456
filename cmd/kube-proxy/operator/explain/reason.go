package explain

import (
	"cmp"

	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

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
func (f *fate) refusal(q *Query) Reason {
	end := f.dispatched
	if f.End.Action != walk.Accepted {
		end = f.End
	}
	facts := ruleset.Facts{
		Source: q.Source, Destination: q.Destination, Protocol: cluster.Protocol(q.Protocol),
		ServicePort: f.servicePort(),
	}
	if n := len(f.rows); n > 0 {
		facts.Set = f.rows[n-1].Set.Name
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
		return NewReason(r, facts)
	}
	switch {
	case ruleset.RejectsOnLocalhost(facts.Chain):
		return NewReason(ruleset.Localhost, facts)
	case facts.Chain != "":
		return NewReason(ruleset.Unexplained, facts)
	case q.Destination.Addr().IsLoopback():
		return NewReason(ruleset.Localhost, facts)
	case facts.ServicePort != "":
		return NewReason(ruleset.Damaged, facts)
	}
	return NewReason(ruleset.NoService, facts)
}

// counted returns the reason for which a packet was counted before it was
// rejected or dropped.
func (f *fate) counted(end walk.Action) (r ruleset.Reason, ok bool) {
	r, ok = ruleset.RefusalOf(f.Counter)
	return r, ok && (end == walk.Rejected && r.Rejects() || end == walk.Dropped && !r.Rejects())
}

// masquerade returns the reason why a path's packet is masqueraded. It follows
// from the rule that marked the packet, or from the rule that masquerades it.
func (f *fate) masquerade() Reason {
	by := cmp.Or(f.Marked, f.End.By)
	code := cmp.Or(ruleset.MasqueradeBy(by.Chain, by.Rule.Comment), ruleset.Unexplained)
	return NewReason(code, ruleset.Facts{Chain: by.Chain, Masqueraded: true})
}
