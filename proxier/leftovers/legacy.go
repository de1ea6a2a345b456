package leftovers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
)

// removeFromLegacy removes kube-proxy's chains and rules from the tables of
// iptables-legacy.
func removeFromLegacy(ctx context.Context, r *report) error {
	return eachLegacy(func(family nft.Family, name string) error {
		done, err := removeFromLegacyTable(ctx, family, name)
		r.addTable(legacyName(family, name), done)
		if err != nil {
			return fmt.Errorf("remove leftovers from %s: %w", legacyName(family, name), err)
		}
		return nil
	})
}

// eachLegacy calls f for the tables that exist and can have leftovers.
func eachLegacy(f func(family nft.Family, name string) error) error {
	var errs []error
	for _, family := range families {
		names, err := xtables.Names(family)
		errs = append(errs, err)
		for _, name := range tables {
			if slices.Contains(names, name) {
				errs = append(errs, f(family, name))
			}
		}
	}
	return errors.Join(errs...)
}

func legacyName(family nft.Family, name string) string {
	return "legacy table " + family.String() + " " + name
}

// removeFromLegacyTable removes the leftovers from a table and returns the
// plan that was carried out.
func removeFromLegacyTable(ctx context.Context, family nft.Family, name string) (plan, error) {
	var done plan
	err := xtables.Delete(ctx, family, name, func(t *xtables.Table) (xtables.Deletion, error) {
		c, err := legacyContents(name, t)
		if err != nil {
			return xtables.Deletion{}, err
		}
		done = makePlan(c, nil)
		d := xtables.Deletion{Flush: done.flush, Chains: done.delete}
		for _, r := range done.rules {
			d.Rules = append(d.Rules, int(r.handle))
		}
		return d, nil
	})
	if err != nil && !errors.Is(err, xtables.ErrCounters) {
		done = plan{}
	}
	return done, err
}

// legacyContents returns the contents of a table for a plan. The handle of a
// rule is its index in the table.
func legacyContents(name string, t *xtables.Table) (contents, error) {
	c := contents{table: name, chains: t.Chains()}
	jumps, err := t.Jumps()
	for _, j := range jumps {
		if !isLeftoverChain(name, j.Chain) {
			c.rules = append(c.rules, rule{chain: j.Chain, target: j.Target, handle: uint64(j.Rule)})
		}
	}
	return c, err
}
