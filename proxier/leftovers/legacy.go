package leftovers

import (
	"context"
	"errors"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
)

// legacy removes kube-proxy's chains and rules from the tables of
// iptables-legacy.
func (r *removal) legacy(ctx context.Context) error {
	var errs []error
	for _, family := range families {
		names, err := xtables.Names(family)
		errs = append(errs, err)
		for _, name := range tables {
			if !slices.Contains(names, name) {
				continue
			}
			object := "legacy table " + family.String() + " " + name
			done, err := r.legacyTable(ctx, family, name)
			r.addTable(object, done)
			errs = append(errs, r.failed(object, err))
		}
	}
	return errors.Join(errs...)
}

// legacyTable removes the leftovers from a table and returns the plan that was
// carried out.
func (r *removal) legacyTable(ctx context.Context, family nft.Family, name string) (plan, error) {
	var done plan
	err := xtables.Delete(ctx, family, name, func(t *xtables.Table) (xtables.Deletion, error) {
		var err error
		if done, err = makePlan(name, t.Chains(), t.Rules, nil); r.findOnly || err != nil {
			return xtables.Deletion{}, err
		}
		d := xtables.Deletion{Rules: make(map[string][]int), Flush: done.flush, Chains: done.delete}
		for _, rule := range done.rules {
			d.Rules[rule.chain] = append(d.Rules[rule.chain], rule.index)
		}
		return d, nil
	})
	if err != nil && !errors.Is(err, xtables.ErrCounters) {
		done = plan{}
	}
	return done, err
}
