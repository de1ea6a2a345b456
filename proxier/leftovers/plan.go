package leftovers

import (
	"fmt"
	"slices"
)

// rule is a rule of a chain that jumps or goes to another chain.
type rule struct {
	chain, target string
	handle        uint64 // by which the kernel knows it; in legacy tables the number of its entry
}

// contents is what a table holds.
type contents struct {
	table  string // "nat"
	chains []string
	rules  []rule // those that jump or go to another chain, of all chains that are not kube-proxy's
}

// ownedChains returns those of the chains that are kube-proxy's.
func ownedChains(table string, chains []string) []string {
	var owned []string
	for _, c := range chains {
		if ownedChain(table, c) {
			owned = append(owned, c)
		}
	}
	return owned
}

// plan is what is to be done with a table, in this order.
type plan struct {
	rules  []rule   // to delete, of built-in chains
	flush  []string // chains to empty
	delete []string // chains to delete, all of which are emptied before
	kept   []string // chains that stay, and why
}

// makePlan decides what goes. A chain that rules of others jump to cannot go; nor can one that is in use, which is what the kernel said.
func makePlan(c contents, inUse map[string]bool) plan {
	var p plan
	users := make(map[string]string) // of chains, by name
	for chain := range inUse {
		users[chain] = "a rule or an element of another program"
	}
	for _, r := range c.rules {
		switch {
		case ownedJump(c.table, r):
			p.rules = append(p.rules, r)
		case ownedChain(c.table, r.target):
			users[r.target] = "a rule of chain " + r.chain
		}
	}
	owned := ownedChains(c.table, c.chains)
	slices.Sort(owned)
	for _, chain := range owned {
		user, used := users[chain]
		switch {
		case !used:
			p.flush = append(p.flush, chain)
			p.delete = append(p.delete, chain)
		case chain == markMasquerade:
			p.kept = append(p.kept, fmt.Sprintf("chain %s as it is, for %s", chain, user))
		default:
			p.flush = append(p.flush, chain)
			p.kept = append(p.kept, fmt.Sprintf("chain %s without its rules, for %s", chain, user))
		}
	}
	return p
}

// empty says whether there is nothing to do.
func (p plan) empty() bool { return len(p.rules) == 0 && len(p.flush) == 0 }

// removes says whether anything goes, other than rules of chains that stay.
func (p plan) removes() bool { return len(p.rules) > 0 || len(p.delete) > 0 }

// String says what goes: "3 rules and 17 chains". Rules within these chains are not counted.
func (p plan) String() string {
	return count(len(p.rules), "rule") + " and " + count(len(p.delete), "chain")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
