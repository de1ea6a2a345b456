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
func (p *Plan) Reach(policy cluster.Policy) Reach {
	if p == nil || len(p.Cluster) == 0 {
		return Reach{Reason: NoEndpoints}
	}
	l := p.list(policy)
	n := l.reachable()
	switch {
	case len(l.targets) == 0:
		return Reach{Reason: NoLocalEndpoints}
	case n == 0:
		return Reach{Reason: NoWeight}
	}
	return Reach{Endpoints: n}
}
