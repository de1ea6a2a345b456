package proxier

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// tableState is what a table in the kernel is worth to a rewrite.
type tableState uint8

const (
	// tableUnused: there is no table, or packets do not get to it. It is written in several transactions, the
	// base chains with the last one, so that packets see nothing or everything.
	tableUnused tableState = iota
	// tableOurs has our sets and our base chains. Its rows and rules are replaced in one transaction; what packets put into @affinity stays.
	tableOurs
	// tableForeign is one of another shape, such as kube-proxy's. It is replaced as a whole in one transaction.
	tableForeign
)

// maxColdRows is how many rows a transaction has while the table is unused: a map that grows within one huge transaction can stall.
const maxColdRows = 20000

// maxAttempts is how often a rewrite is tried with ever fewer service ports, or after other programs got in between.
const maxAttempts = 20

// rewrite writes everything anew.
func (b *Backend) rewrite() error {
	var err error
	isolate := false
	for range maxAttempts {
		err = b.tryRewrite(isolate)
		switch {
		case err == nil:
			b.batch = nft.NewBatch(&nft.Table{Family: b.layout.family, Name: TableName}) // the buffers of the old one are as large as everything
			b.stats.Rewrites++
			b.inDoubt = ""
			clear(b.ids.recovered)
			b.prune()
			return nil
		case errors.Is(err, nft.ErrUnknownOutcome):
			return err
		case errors.Is(err, nft.ErrGeneration), errors.Is(err, unix.ENOENT):
			// Another program got in between: what was there is gone.
		case b.refuseTagged(err, func(*portState) bool { return true }):
			// Without them, then.
		case !isolate && refusedByKernel(err):
			isolate = true // to find out whose row it is
		default:
			return err
		}
	}
	return err
}

// tryRewrite writes everything but the service ports that are refused. If isolate is set, no two of them share a message.
func (b *Backend) tryRewrite(isolate bool) error {
	tx := &transaction{shared: make(sharedChange)}
	tx.setNode(b)
	table := tx.table
	found, err := b.inspect(table)
	if err != nil {
		return err
	}
	klog.V(2).InfoS("Rewriting", "table", table, "found", found.state, "services", len(b.services))
	b.balancers = make(map[string]struct{})
	b.resetBatch(isolate)
	b.rows = newRowCount()
	b.beginRewrite(table, found)
	for _, r := range tx.nodeRows {
		b.addRow(r)
	}
	if err := b.writeServices(tx, found.state, isolate); err != nil {
		return err
	}
	for _, c := range table.Chains {
		if c.Hook != nil {
			b.writeChains([]*nft.Chain{c})
		}
	}
	if err := b.commitOver(table, found); err != nil {
		return err
	}
	b.shared = make(sharedRows)
	b.garbage = make(garbage)
	if found.state == tableOurs {
		for _, d := range found.strays {
			b.garbage[d] = struct{}{}
		}
	}
	b.noLocal = noLocal{}
	for _, c := range tx.changes {
		b.noLocal.add(c.next, 1)
	}
	b.remember(tx)
	b.keep(tx.changes)
	for name := range b.balancers {
		delete(b.garbage, discarded{discardedChain, name})
	}
	return nil
}

// beginRewrite puts the empty table into the batch, with all but the base chains.
func (b *Backend) beginRewrite(table *nft.Table, found inspection) {
	if found.exists && found.state != tableOurs {
		b.batch.DeleteTable()
	}
	b.batch.AddTable(table.Comment)
	for _, s := range table.Sets {
		b.batch.AddSet(s)
	}
	if found.state == tableOurs {
		for _, s := range table.Sets {
			if s != b.layout.affinity {
				b.batch.FlushSet(s.Name)
			}
		}
		for _, d := range found.strays { // so that they refer to nothing
			if d.kind == discardedChain {
				b.batch.FlushChain(d.name)
			}
		}
	}
	var chains []*nft.Chain
	for _, c := range table.Chains {
		if c.Hook == nil {
			chains = append(chains, c)
		}
	}
	b.writeChains(chains)
}

// writeServices puts the chains and rows of all service ports into the batch. An unused table gets them in several transactions.
func (b *Backend) writeServices(tx *transaction, state tableState, isolate bool) error {
	var rows []nft.Row
	counted := make(sharedRows)
	for _, s := range sorted(slices.Collect(maps.Values(b.services))) {
		b.markDirty(s)
		for _, p := range s.ports {
			next := b.makePlan(p)
			tx.changes = append(tx.changes, change{p, next})
			b.batch.Tag(p.tag)
			b.writeChains(b.render.chains(next))
			rows = b.render.rows(rows[:0], next)
			for _, r := range rows {
				if b.layout.isShared(r.Set) {
					tx.shared.add(r, 1, p.tag)
					k := sharedKey{r.Set, r.Key}
					if counted[k]++; counted[k] > 1 {
						continue
					}
				}
				b.writeBalancer(r.Verdict.Chain())
				b.addRow(r)
			}
			if state == tableUnused && b.batch.Rows() >= maxColdRows {
				if err := b.commitCold(); err != nil {
					return err
				}
				b.resetBatch(isolate)
			}
		}
	}
	return nil
}

// commitCold commits a batch to a table that no packet gets to yet, whatever other programs commit meanwhile.
func (b *Backend) commitCold() error {
	for range maxAttempts {
		if err := b.commitExpecting(); !errors.Is(err, nft.ErrGeneration) {
			return err
		}
	}
	return nft.ErrGeneration
}

func (b *Backend) resetBatch(isolate bool) {
	b.batch.Reset()
	b.rows.discard()
	if isolate {
		b.batch.Isolate()
	}
}

// inspection is what the kernel has under the table's name.
type inspection struct {
	exists bool
	state  tableState
	strays []discarded // chains and sets that are not the program's
}

// inspect finds out what the kernel has under the table's name. What it finds is of the generation that it takes note of, or of a later one.
func (b *Backend) inspect(table *nft.Table) (found inspection, err error) {
	now, err := b.kernel.Generation()
	if err != nil {
		return found, err
	}
	b.generation.found(now)
	if _, found.exists, err = b.kernel.TableHandle(table); err != nil || !found.exists {
		return found, err
	}
	sets, err := b.kernel.Sets(table)
	if err != nil {
		return found, err
	}
	chains, err := b.kernel.Chains(table)
	if err != nil {
		return found, err
	}
	found.state, found.strays = compareTable(table, sets, chains)
	return found, nil
}

// compareTable says what a table that was found is worth, and which of its chains and sets are not the program's.
func compareTable(table *nft.Table, sets, chains []nft.Found) (state tableState, strays []discarded) {
	hooked, foreign := false, false
	found := make(map[string]nft.Found)
	for _, s := range sets {
		found[s.Name] = s
		if !slices.ContainsFunc(table.Sets, func(want *nft.Set) bool { return want.Name == s.Name }) {
			strays = append(strays, discarded{discardedSet, s.Name})
		}
	}
	for _, want := range table.Sets {
		if have, ok := found[want.Name]; ok && !have.Same(want) {
			foreign = true
		}
	}
	_, ours := found["service-endpoints"] // no other proxy has it
	bases, wanted := 0, 0
	for _, want := range table.Chains {
		if want.Hook != nil {
			wanted++
		}
	}
	for _, c := range chains {
		hooked = hooked || c.Hook != nil
		i := slices.IndexFunc(table.Chains, func(want *nft.Chain) bool { return want.Name == c.Name })
		switch {
		case i < 0 && c.Hook != nil, i >= 0 && !c.SameHook(table.Chains[i]):
			foreign = true
		case i < 0:
			strays = append(strays, discarded{discardedChain, c.Name})
		case c.Hook != nil:
			bases++
		}
	}
	switch {
	case !hooked:
		return tableUnused, strays
	case foreign || !ours || bases != wanted:
		return tableForeign, strays
	}
	return tableOurs, strays
}

// String says it for the log.
func (s tableState) String() string {
	return [...]string{"unused", "ours", "foreign"}[s]
}

// commitOver commits a batch that replaces what was found. If another program committed something meanwhile, but nothing that changes
// what was found, the batch is as good as before.
func (b *Backend) commitOver(table *nft.Table, found inspection) error {
	for range maxAttempts {
		err := b.commitExpecting()
		if err == nil {
			b.watch = watch{strangers: b.generation.strangers, repaired: b.watch.repaired}
		}
		if !errors.Is(err, nft.ErrGeneration) {
			return err
		}
		now, err := b.inspect(table)
		if err != nil {
			return err
		}
		if found.state != tableUnused && (now.state != found.state || !slices.Equal(now.strays, found.strays)) {
			return nft.ErrGeneration
		}
	}
	return fmt.Errorf("%w, %d times in a row", nft.ErrGeneration, maxAttempts)
}
