package ruleset

import "github.com/nftproxy/nftproxy/proxier/cluster"

// Reach is what new connections to a frontend meet: the only answer to this
// question for rows, views, statistics and health checks.
type Reach struct {
	// Endpoints is the number of endpoints that they can reach.
	Endpoints int
	// Reason is the reason why they reach none: NoEndpoints, NoLocalEndpoints
	// or NoWeight. It is "" if they reach one.
	Reason Reason
}

// Reach returns what new connections to the frontends with a traffic policy
// meet. If the policy is Local and the frontend is not a ClusterIP, this
// concerns clients outside the cluster: pods of the cluster and this node meet
// the Reach of the policy Cluster. A nil plan has no endpoints.
func (p *Plan) Reach(policy cluster.Policy) Reach { return p.reach(kindOf(policy)) }

// reach returns what new connections meet for which a kind of chain selects an
// endpoint.
func (p *Plan) reach(k chainKind) Reach {
	switch {
	case p == nil || len(p.Cluster) == 0:
		return Reach{Reason: NoEndpoints}
	case len(p.targets(k)) == 0:
		return Reach{Reason: NoLocalEndpoints}
	}
	if n := p.weighty(k); n > 0 {
		return Reach{Endpoints: n}
	}
	return Reach{Reason: NoWeight}
}

// kindOf returns the kind of chain for traffic with a policy.
func kindOf(policy cluster.Policy) chainKind {
	if policy == cluster.PolicyLocal {
		return toLocal
	}
	return toAll
}

// weighty returns the number of targets of a kind of chain that have a weight
// above 0, or no need for one.
func (p *Plan) weighty(k chainKind) (n int) {
	targets := p.targets(k)
	if p.table(k) == nil {
		return len(targets)
	}
	for _, t := range targets {
		if t.Weight.Int() > 0 {
			n++
		}
	}
	return n
}
