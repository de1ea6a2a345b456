package table

import (
	"slices"

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

// stays are the frontends in the kernel of service ports that stay the same in
// this sync. Other service ports that own them now must wait: the kernel
// accepts an equal row, and it would be lost when the former owner gives up its
// own.
type stays map[ruleset.Frontend]*portState

// without returns the frontends that no other service port keeps.
func (s stays) without(all []ruleset.ServedFrontend, p *portState) []ruleset.ServedFrontend {
	if len(s) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(f ruleset.ServedFrontend) bool {
		by := s[f.Frontend]
		return by != nil && by != p
	})
}
