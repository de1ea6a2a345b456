package leftovers

import (
	"fmt"
	"slices"
)

// rule is a rule of a chain that jumps or goes to another chain.
type rule struct {
	chain, target string
	handle        uint64 // in legacy tables the index of the entry
}

// contents has the contents of a table that a plan depends on.
type contents struct {
	table  string // "nat"
	chains []string
	rules  []rule // the jumps and gotos in chains that are not leftovers
}

// leftoverChains returns the chains that are leftovers.
func leftoverChains(table string, chains []string) []string {
	return slices.DeleteFunc(slices.Clone(chains), func(c string) bool { return !isLeftoverChain(table, c) })
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
	leftovers := leftoverChains(c.table, c.chains)
	slices.Sort(leftovers)
	for _, chain := range leftovers {
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
