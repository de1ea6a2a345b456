package table

import (
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// content is a plan as a keep.Content.
type content struct {
	*ruleset.Plan
	rules *ruleset.Ruleset
}

func (c content) Rows(to []nft.Row) []nft.Row { return c.rules.Rows(to, c.Plan) }
func (c content) Chains() []*nft.Chain        { return c.rules.Chains(c.Plan) }
func (c content) ChainNames() []string        { return c.rules.ChainNames(c.Plan) }

func (c content) Sets() []*nft.Set {
	if set := c.rules.AffinitySet(c.Plan); set != nil {
		return []*nft.Set{set}
	}
	return nil
}

// planOf returns the plan that is a content, nil for none.
func planOf(c keep.Content) *ruleset.Plan {
	if c == nil {
		return nil
	}
	return c.(content).Plan
}
