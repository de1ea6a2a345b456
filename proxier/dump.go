package proxier

import (
	"io"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// Fprint writes the desired table in nft syntax, as a file that `nft -f` loads. It
// reads nothing from the kernel and works without Setup.
func (b *Backend) Fprint(w io.Writer) error {
	program := b.programConfig()
	table := program.table()
	rows := b.rowsOfNode(program)
	if id := b.have.reservedIDs; id != 0 {
		rows = append(rows, nft.Row{Set: b.layout.affinityIDs, Key: nft.Tuple{}.Integer(id)})
	}
	shared := make(sharedRows)
	balancers := make(map[string]balancer)
	affinity := make(map[*nft.Set]struct{})
	for _, s := range sorted(slices.Collect(maps.Values(b.services))) {
		for _, p := range s.ports {
			plan := p.committed
			if _, dirty := b.dirty[s]; dirty || b.inDoubt != "" {
				plan, _ = b.makePlan(p) // without those that cannot be served
			}
			if set := b.render.affinitySetOf(plan); set != nil {
				affinity[set] = struct{}{}
			}
			table.Chains = append(table.Chains, b.render.chains(plan)...)
			for _, r := range b.render.rows(nil, plan) {
				if k := (sharedKey{r.Set, r.Key}); b.layout.isShared(r.Set) {
					if shared[k]++; shared[k] > 1 {
						continue
					}
				}
				if bal, ok := parseBalancer(r.Verdict.Chain()); ok {
					balancers[bal.name()] = bal
				}
				rows = append(rows, r)
			}
		}
	}
	for _, set := range b.layout.affinity {
		if _, used := affinity[set]; used {
			table.Sets = append(table.Sets, set)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(balancers)) {
		table.Chains = append(table.Chains, balancers[name].chain(b.layout, b.render.mark))
	}
	return table.Fprint(w, rows)
}

// Tables writes the desired tables, as Backend.Fprint does. It must not be called
// while SyncLoop runs.
func (p *Proxier) Tables(w io.Writer) error {
	for _, b := range p.backends {
		if err := b.Fprint(w); err != nil {
			return err
		}
	}
	return nil
}

var _ Sink = (*Backend)(nil)
var _ kernel = (*nft.Conn)(nil)
