package table

import "github.com/nftproxy/nftproxy/nft"

// takeoverPrefix begins the names of the chains that takeoverChains returns.
const takeoverPrefix = "takeover-"

// takeoverChains returns a copy of each base chain, with the next higher
// priority. A transaction that replaces a foreign table adds them, and the next
// one deletes them.
//
// The kernel calls a new base chain before an old one of the same priority. A
// packet can pass the new chain before the transaction takes effect, when it
// has no rules yet, and the old chain afterwards, when it has no rules any
// more. Such a packet passes the copy.
func takeoverChains(program *nft.Table) (copies []*nft.Chain) {
	for _, c := range program.Chains {
		if c.Hook != nil {
			hook := *c.Hook
			hook.Priority++
			copies = append(copies, &nft.Chain{Name: takeoverPrefix + c.Name, Hook: &hook, Rules: c.Rules})
		}
	}
	return copies
}
