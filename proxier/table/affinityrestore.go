package table

import (
	"math/rand/v2"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// restore reads the ids of endpoints and the affinity sets of service
// ports in the kernel's table, so that clients keep their endpoints when the
// proxy restarts. Other service ports get sets by a new seed. The sets can
// contain clients of removed endpoints, whose ids are in no rule. Therefore new
// ids begin after the ids that the earlier process reserved, or, if these
// cannot be read, at the number of seconds since 1970.
//
// If a chain cannot be read, the clients of its endpoints may get another one.
func (a *affinityIDs) restore(kernel keep.Kernel, rules *ruleset.Ruleset, table *nft.Table) error {
	if a.sets.seed == 0 {
		a.sets.seed = rand.Uint64()
	}
	_, exists, err := kernel.FindTable(table)
	if err == nil && !exists {
		return nil
	}
	a.next = uint32(time.Now().Unix())
	if err == nil {
		var reserved []nft.Row
		reserved, err = kernel.Rows(table, rules.ReservedIDs(0).Set)
		for i, r := range reserved {
			if n := ruleset.ReservedBelow(r); i == 0 || n > a.next {
				a.next = n
			}
		}
	}
	var chains []nft.Chain
	if err == nil {
		chains, err = kernel.Chains(table)
	}
	for _, chain := range chains { // one by one: a dump of all rules takes quadratic time
		port, ok := ruleset.ParseStickyChain(chain.Name)
		if !ok {
			continue
		}
		rules, errRules := kernel.Rules(table, chain.Name)
		if errRules != nil {
			err = errRules
		}
		for _, r := range rules {
			if sticky, ok := ruleset.ParseStickyRule(r); ok {
				a.adopt(port, sticky)
			}
		}
	}
	return err
}

// adopt records the id of an endpoint and the affinity set that a rule of a
// service port in the kernel has.
func (a *affinityIDs) adopt(port string, rule ruleset.StickyRule) {
	a.known[affinityEndpoint{port, rule.Endpoint}] = knownID{clientID: clientID{rule.ID, rule.Group}}
	a.sets.adopt(port, rule.ClientSet)
	a.adopted = true
	a.next = max(a.next, rule.ID+1, rule.Group+1)
}
