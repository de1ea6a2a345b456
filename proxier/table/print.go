package table

import (
	"io"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// Fprint writes the desired table in nft syntax, as a file that `nft -f` loads.
// It reads nothing from the kernel and works without Setup.
func (t *Table) Fprint(w io.Writer) error {
	l := &listing{}
	tx := t.begin(l, newCommitted())
	tx.program = t.rules.MakeProgram(t.desired.node)
	ids := t.ids.preview()
	err := tx.writeAll(func(yield func(change) bool) {
		for _, s := range t.desired.allServices() {
			for _, p := range s.ports {
				if !yield(change{port: p, next: t.previewPlan(p, ids)}) {
					return
				}
			}
		}
	}, ids, func() error { return nil })
	if err != nil {
		return err
	}
	table := *tx.program.Table
	table.Sets = slices.Clone(table.Sets)
	for _, s := range t.rules.AffinitySets() {
		if _, used := tx.affinity[s]; used {
			table.Sets = append(table.Sets, s)
		}
	}
	table.Chains = slices.Concat(table.Chains, l.serviceChains(tx))
	return table.Fprint(w, l.rows)
}

// listing is a writer that keeps chains and rows.
type listing struct {
	chains []*nft.Chain
	rows   []nft.Row
}

// serviceChains returns the chains of service ports, followed by the balancers.
func (l *listing) serviceChains(tx *transaction) []*nft.Chain {
	chains := slices.DeleteFunc(l.chains, func(c *nft.Chain) bool {
		_, balancer := tx.balancers[c.Name]
		return balancer || findChain(tx.program.Table, c.Name) != nil
	})
	for _, name := range slices.Sorted(maps.Keys(tx.balancers)) {
		chains = append(chains, tx.rules.Balancer(name))
	}
	return chains
}

func (l *listing) AddChain(c *nft.Chain) { l.chains = append(l.chains, c) }
func (l *listing) AddRow(r nft.Row)      { l.rows = append(l.rows, r) }

// A listing begins empty and nft.Chain contains its rules, so the other methods
// have nothing to do.

func (l *listing) AddCounter(*nft.Counter) {}
func (l *listing) AddSet(*nft.Set)         {}
func (l *listing) AddRules(*nft.Chain)     {}
func (l *listing) FlushChain(string)       {}
func (l *listing) DeleteRow(nft.Row)       {}
func (l *listing) Tag(uint32)              {}
