package explain

import (
	"cmp"
	"fmt"

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
	name := f.servicePort()
	if r, ok := f.counted(end.Action); ok {
		if name != "" && (r == ruleset.UnknownPort || r == ruleset.UnallocatedAddress) {
			return damaged(name)
		}
		return Reason{ReasonCode(r), r.Text(f.refused(q))}
	}
	switch {
	case end.By != nil && ruleset.RejectsOnLocalhost(end.By.Chain):
		return Reason{Localhost, fmt.Sprintf("localhost does not serve NodePorts of %s", q.Protocol)}
	case end.By != nil:
		return Reason{Unexplained, fmt.Sprintf("a rule of chain %s ends the walk", end.By.Chain)}
	case q.Destination.Addr().IsLoopback():
		return Reason{Localhost, "rules do not translate packets to localhost; a program on this node answers"}
	case name != "":
		return damaged(name)
	}
	return Reason{NoService, fmt.Sprintf("no Service has %s/%s", q.Destination, q.Protocol)}
}

// damaged returns the reason why a packet that a dispatch row leads to a
// balancer is not translated. If it is for a ClusterIP, it is rejected.
func damaged(servicePort string) Reason {
	return Reason{Damaged, "the table has no row with an endpoint of " + servicePort}
}

// counted returns the reason for which a packet was counted before it was
// rejected or dropped.
func (f *fate) counted(end walk.Action) (r ruleset.Reason, ok bool) {
	r, ok = ruleset.ReasonOf(f.Counter)
	return r, ok && (end == walk.Rejected && r.Rejects() || end == walk.Dropped && !r.Rejects())
}

// refused describes the packet of a path that is refused.
func (f *fate) refused(q *Query) ruleset.Refused {
	c := ruleset.Refused{
		Source: q.Source, Destination: q.Destination, Protocol: cluster.Protocol(q.Protocol),
		ServicePort: f.servicePort(),
	}
	if n := len(f.rows); n > 0 {
		c.Set = f.rows[n-1].Set.Name
	}
	return c
}

// masquerade returns the reason why a path's packet is masqueraded. It follows
// from the rule that marked the packet, or from the rule that masquerades it.
func (f *fate) masquerade() Reason {
	by := cmp.Or(f.Marked, f.End.By)
	if m := ruleset.MasqueradeBy(by.Chain, by.Rule.Comment); m != "" {
		return Reason{ReasonCode(m), m.Text()}
	}
	return Reason{Unexplained, "a rule of chain " + by.Chain + " marks the packet"}
}
