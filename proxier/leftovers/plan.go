package leftovers

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// rule is a rule of a chain that jumps or goes to another chain.
type rule struct {
	chain, target string
	index         int    // in the chain
	handle        uint64 // in nf_tables
}

// plan has the changes of a table in the order in which they are carried out.
type plan struct {
	rules  []rule   // to delete, in built-in chains
	flush  []string // chains
	delete []string // chains, all of which are in flush
	kept   []string // descriptions of chains that stay
}

// makePlan returns the plan for a table with these chains. It keeps the chains
// to which rules of other programs jump, and the chains in inUse, which the
// kernel refused to delete.
//
// It reads only the rules of the chains that are not leftovers, which are few,
// and none if there are no leftovers.
func makePlan(
	table string, chains []string, rules func(chain string) ([]nft.Rule, error), inUse map[string]bool,
) (p plan, err error) {
	users := make(map[string]string) // by chain
	for chain := range inUse {
		users[chain] = "a rule or an element of another program"
	}
	leftover := func(chain string) bool { return isLeftoverChain(table, chain) }
	if !slices.ContainsFunc(chains, leftover) {
		return p, nil
	}
	for _, chain := range chains {
		if leftover(chain) {
			continue
		}
		found, err := rules(chain)
		if err != nil {
			return p, err
		}
		for i, r := range found {
			switch r := (rule{chain, r.Target(), i, r.Handle}); {
			case isLeftoverJump(table, r):
				p.rules = append(p.rules, r)
			case leftover(r.target):
				users[r.target] = "a rule of chain " + chain
			}
		}
	}
	for _, chain := range slices.Sorted(slices.Values(chains)) {
		if leftover(chain) {
			p.remove(chain, users[chain])
		}
	}
	return p, nil
}

// remove plans to delete a chain, or to keep it if it has a user.
func (p *plan) remove(chain, user string) {
	switch {
	case user == "":
		p.flush = append(p.flush, chain)
		p.delete = append(p.delete, chain)
	case chain == markMasquerade:
		p.kept = append(p.kept, fmt.Sprintf("chain %s with its rules, used by %s", chain, user))
	default:
		p.flush = append(p.flush, chain)
		p.kept = append(p.kept, fmt.Sprintf("chain %s without its rules, used by %s", chain, user))
	}
}

// removes reports whether the plan deletes rules or chains. Flushing is not
// counted.
func (p plan) removes() bool { return len(p.rules) > 0 || len(p.delete) > 0 }

// String returns "3 rules and 17 chains". Rules in deleted chains are not
// counted.
func (p plan) String() string {
	return count(len(p.rules), "rule") + " and " + count(len(p.delete), "chain")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
