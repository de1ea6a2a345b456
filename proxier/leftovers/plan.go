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

// contents has the contents of a table that a plan depends on.
type contents struct {
	table     string   // "nat"
	leftovers []string // chains
	rules     []rule   // the jumps and gotos in chains that are not leftovers
}

// readContents returns the contents of a table with these chains. It reads only
// the rules of the chains that are no leftovers, which are few, and none if
// there are no leftovers.
func readContents(table string, chains []string, rules func(chain string) ([]nft.Rule, error)) (contents, error) {
	c := contents{table: table}
	var others []string
	for _, chain := range chains {
		if isLeftoverChain(table, chain) {
			c.leftovers = append(c.leftovers, chain)
		} else {
			others = append(others, chain)
		}
	}
	if len(c.leftovers) == 0 {
		return c, nil
	}
	for _, chain := range others {
		found, err := rules(chain)
		if err != nil {
			return c, err
		}
		for i, r := range found {
			if target := r.Target(); target != "" {
				c.rules = append(c.rules, rule{chain, target, i, r.Handle})
			}
		}
	}
	return c, nil
}

// plan has the changes of a table in the order in which they are carried out.
type plan struct {
	rules  []rule   // to delete, in built-in chains
	flush  []string // chains
	delete []string // chains, all of which are in flush
	kept   []string // descriptions of chains that stay
}

// makePlan returns the plan for a table. It keeps the chains to which rules
// of other programs jump, and the chains in inUse, which the kernel refused
// to delete.
func makePlan(c contents, inUse map[string]bool) plan {
	var p plan
	users := make(map[string]string) // by chain
	for chain := range inUse {
		users[chain] = "a rule or an element of another program"
	}
	for _, r := range c.rules {
		switch {
		case isLeftoverJump(c.table, r):
			p.rules = append(p.rules, r)
		case isLeftoverChain(c.table, r.target):
			users[r.target] = "a rule of chain " + r.chain
		}
	}
	for _, chain := range slices.Sorted(slices.Values(c.leftovers)) {
		user, used := users[chain]
		switch {
		case !used:
			p.flush = append(p.flush, chain)
			p.delete = append(p.delete, chain)
		case chain == markMasquerade:
			p.kept = append(p.kept, fmt.Sprintf("chain %s with its rules, used by %s", chain, user))
		default:
			p.flush = append(p.flush, chain)
			p.kept = append(p.kept, fmt.Sprintf("chain %s without its rules, used by %s", chain, user))
		}
	}
	return p
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
