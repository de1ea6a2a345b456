package ruleset

import (
	"cmp"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// A target that a balancer draws is looked up by frontend and index, so a
// service port has a row for each pair of frontend and target. A user can
// create Services with millions of pairs. Therefore a service port with many
// frontends and targets has a number, and chains that draw a number and index:
// it has a row for each frontend and one for each target.

// A class has the number of a service port above numberBits, and below them the
// index of a row. All usable endpoints have indexes below localIndex, endpoints
// of this node have indexes from localIndex on.
const (
	numberBits = 14
	localIndex = 1 << (numberBits - 1)
	// maxNumber is the largest number, maxNumberRows the largest number of rows
	// of a list.
	maxNumber     = 1<<(32-numberBits) - 1
	maxNumberRows = localIndex - firstIndex
)

// DefaultNumberLimit is the default of Config.NumberLimit.
const DefaultNumberLimit = 4096

// saved returns the number of rows that a number saves.
func (p *Plan) saved() (rows int) {
	if p.HasAffinity() {
		return 0
	}
	for _, policy := range []cluster.Policy{cluster.PolicyCluster, cluster.PolicyLocal} {
		use := 0 // number of frontends whose clients use the endpoints
		for _, f := range p.Frontends {
			if f.Policy == policy || policy == cluster.PolicyCluster && f.splitsClients() {
				use++
			}
		}
		rows += max(use-1, 0) * p.list(policy).rows()
	}
	return rows
}

// numberFor returns the number of a plan: 0, or the given one if it saves more
// rows than the limit. A plan that replaces one with a number keeps it until it
// saves less than half of that, so that a change of one target rarely changes
// all rows.
func (r *Ruleset) numberFor(p, before *Plan, number uint32) uint32 {
	limit := cmp.Or(r.config.NumberLimit, DefaultNumberLimit)
	if before.Number != 0 {
		limit /= 2
	}
	longest := max(p.list(cluster.PolicyCluster).rows(), p.list(cluster.PolicyLocal).rows())
	if number > maxNumber || longest > maxNumberRows || p.saved() <= limit {
		return 0
	}
	return number
}

// portClass returns the class of the row of the first target for traffic with a
// policy of a service port with a number.
func (p *Plan) portClass(policy cluster.Policy) Class {
	c := Class(p.Number<<numberBits + firstIndex)
	if policy == cluster.PolicyLocal {
		c += localIndex
	}
	return c
}

// number returns the number of the service port that has the class.
func (c Class) number() uint32 { return uint32(c) >> numberBits }

// numberChain draws one of the targets of a service port with a number. For
// port-7 it is
//
//	meta priority set numgen random mod 500 offset 114689 goto retry-port
//
// `port-local-7` draws with the offset 122881. See draw for service ports with
// slots.
func (r *Ruleset) numberChain(p *Plan, kind chainKind) *nft.Chain {
	l := p.list(kind.policy())
	index := l.draw().index(r.layout.family, l.rows(), uint32(p.portClass(kind.policy())))
	return &nft.Chain{Name: p.chainName(kind), Rules: []nft.Rule{
		nft.NewRule(nft.SetPriority(index), nft.Goto(r.config.after(pickPort, l.draw(), l.rows()))),
	}}
}
