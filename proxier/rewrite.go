package proxier

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// tableState is what a rewrite makes of the table that is in the kernel.
type tableState uint8

const (
	// tableUnused: there is no table, or packets do not get to it. It is written in
	// several transactions, the base chains with the last one, so that packets see
	// nothing or everything.
	tableUnused tableState = iota
	// tableOurs has our sets and our base chains. Its rows and rules are replaced
	// in one transaction; the affinity sets stay.
	tableOurs
	// tableForeign has another shape, such as that of kube-proxy. It is replaced as
	// a whole in one transaction.
	tableForeign
)

// maxColdBytes is the size at which a transaction ends while the table is unused:
// about 20,000 rows. A map that grows within one huge transaction can stall.
const maxColdBytes = 1200 << 10

// rewrite writes everything.
func (b *Backend) rewrite() error {
	var err error
	isolate := false
	for range maxAttempts {
		err = b.tryRewrite(isolate)
		switch {
		case err == nil:
			b.batch = nft.NewBatch(&nft.Table{Family: b.layout.family, Name: TableName}) // the buffers of the old one are as large as everything
			b.stats.Rewrites++
			clear(b.ids.recovered)
			if err := b.observe(); err != nil {
				return err
			}
			b.prune()
			return nil
		case errors.Is(err, nft.ErrUnknownOutcome):
			return err
		case errors.Is(err, nft.ErrGeneration), errors.Is(err, unix.ENOENT):
			// Another program committed in between and deleted what was found.
		case b.refuseTagged(err, func(*portState) bool { return true }):
			// Try again without those service ports.
		case !isolate && refusedByKernel(err):
			isolate = true // to find out whose row it is
		default:
			return err
		}
	}
	return err
}

// isAffinitySet reports whether a set that is not part of the program is one of
// the affinity sets.
func isAffinitySet(name string) bool { return strings.HasPrefix(name, affinitySetPrefix) }

// tryRewrite writes everything but the service ports that are refused. If isolate
// is set, no two of them share a message.
func (b *Backend) tryRewrite(isolate bool) error {
	have := newCommitted()
	have.nodePortAddrs = b.have.nodePortAddrs // stale flows are found by comparing them
	tx := b.begin(have)
	tx.whole = true
	tx.setNode(b)
	found, err := b.inspect(tx.table)
	if err != nil {
		return err
	}
	klog.V(2).InfoS("Rewriting", "table", b.tableName(), "found", found.state, "services", len(b.services))
	b.resetBatch(isolate)
	b.beginRewrite(tx, found)
	for _, r := range tx.nodeRows {
		tx.addRow(r)
	}
	if err := b.writeServices(tx, found.state, isolate); err != nil {
		return err
	}
	b.batch.Tag(0)
	tx.reserveIDs(b.ids.next)
	for _, c := range tx.table.Chains {
		if c.Hook != nil {
			tx.writeChains(c)
		}
	}
	if err := b.commitOver(tx.table, found); err != nil {
		return err
	}
	b.have, b.inDoubt = have, ""
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
	b.keep(tx)
	b.remember(tx)
	return nil
}

// beginRewrite puts the empty table into the batch, with all but the base chains.
func (b *Backend) beginRewrite(tx *transaction, found inspection) {
	if found.exists && found.state != tableOurs {
		b.batch.DeleteTable()
	}
	b.batch.AddTable(tx.table.Comment)
	var chains []*nft.Chain
	for _, c := range tx.table.Chains {
		if c.Hook == nil {
			chains = append(chains, c)
		}
	}
	if found.state == tableOurs {
		b.emptyTable(tx.table, chains, found)
	}
	for _, s := range tx.table.Sets {
		b.batch.AddSet(s)
	}
	tx.writeChains(chains...)
}

// emptyTable deletes the rules and rows of a table of ours. The affinity sets,
// which packets fill, keep theirs.
func (b *Backend) emptyTable(table *nft.Table, chains []*nft.Chain, found inspection) {
	for _, c := range chains {
		b.batch.AddChain(c)
		b.batch.FlushChain(c.Name)
	}
	for _, d := range found.strays { // so that they refer to nothing
		switch {
		case d.kind == discardedChain:
			b.batch.FlushChain(d.name)
		case !isAffinitySet(d.name):
			b.batch.FlushSet(d.name)
		}
	}
	for _, s := range table.Sets {
		switch {
		case !slices.Contains(found.sets, s.Name):
		case s.Interval: // flushing deletes row by row, in quadratic time
			b.batch.DeleteSet(s.Name)
		default:
			b.batch.FlushSet(s.Name)
		}
	}
}

// writeServices puts the chains and rows of all service ports into the batch. An
// unused table gets them in several transactions.
func (b *Backend) writeServices(tx *transaction, state tableState, isolate bool) error {
	var rows []nft.Row
	written := make(sharedRows)
	for _, s := range sorted(slices.Collect(maps.Values(b.services))) {
		b.markDirty(s)
		for _, p := range s.ports {
			next := b.planOf(p)
			tx.changes = append(tx.changes, change{p, next})
			b.batch.Tag(p.tag)
			tx.needAffinitySet(next)
			tx.writeChains(b.render.chains(next)...)
			rows = b.render.rows(rows[:0], next)
			for _, r := range rows {
				if b.layout.isShared(r.Set) {
					tx.shared.add(r, 1, p.tag)
					k := sharedKey{r.Set, r.Key}
					if written[k]++; written[k] > 1 {
						continue
					}
				}
				tx.needBalancer(r.Verdict.Chain())
				tx.addRow(r)
			}
			if state == tableUnused && b.batch.Len() >= maxColdBytes {
				if err := b.commitCold(); err != nil {
					return err
				}
				b.resetBatch(isolate)
			}
		}
	}
	return nil
}

// commitCold commits a batch to a table that no packet gets to yet, whatever other
// programs commit meanwhile.
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
	if isolate {
		b.batch.Isolate()
	}
}

// nfAccept is the policy accept of a base chain (NF_ACCEPT of linux/netfilter.h).
const nfAccept = 1

// inspection is what the kernel has under the table's name.
type inspection struct {
	exists bool
	state  tableState
	sets   []string    // names of the sets
	strays []discarded // chains and sets that are not part of the program
}

// inspect reads what the kernel has under the table's name. What it finds is of the
// generation that it records, or of a later one.
func (b *Backend) inspect(table *nft.Table) (found inspection, err error) {
	now, err := b.kernel.Generation()
	if err != nil {
		return found, err
	}
	b.generation.found(now)
	if _, found.exists, err = b.kernel.FindTable(table); err != nil || !found.exists {
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
	for _, s := range sets {
		found.sets = append(found.sets, s.Name)
	}
	found.state, found.strays = compareTable(b.layout, table, sets, chains)
	return found, nil
}

// compareTable compares a table that was found with the one to write. It returns
// what the rewrite makes of it, and the chains and sets that are not part of the
// program.
func compareTable(l *layout, table *nft.Table, sets []nft.FoundSet, chains []nft.FoundChain) (state tableState, strays []discarded) {
	hooked, foreign := false, false
	found := make(map[string]nft.FoundSet)
	for _, s := range sets {
		found[s.Name] = s
		if !slices.ContainsFunc(table.Sets, func(want *nft.Set) bool { return want.Name == s.Name }) {
			strays = append(strays, discarded{discardedSet, s.Name})
		}
	}
	for _, want := range slices.Concat(table.Sets, l.affinity[:]) {
		if have, ok := found[want.Name]; ok && !have.Matches(want) {
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
		case i < 0 && c.Hook != nil, i >= 0 && !c.HookMatches(table.Chains[i]):
			foreign = true
		case i < 0:
			strays = append(strays, discarded{discardedChain, c.Name})
		case c.Hook != nil:
			foreign = foreign || c.Policy != nfAccept // adding a chain that exists keeps its policy
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

// String returns the state for the log.
func (s tableState) String() string {
	return [...]string{"unused", "ours", "foreign"}[s]
}

// commitOver commits a batch that replaces what was found. If another program
// committed meanwhile, but did not change what was found, the batch is still good.
func (b *Backend) commitOver(table *nft.Table, found inspection) error {
	for range maxAttempts {
		err := b.commitExpecting()
		if err == nil {
			b.verified = b.generation.foreign
		}
		if !errors.Is(err, nft.ErrGeneration) {
			return err
		}
		now, err := b.inspect(table)
		if err != nil {
			return err
		}
		same := now.state == found.state && slices.Equal(now.strays, found.strays) && slices.Equal(now.sets, found.sets)
		if found.state != tableUnused && !same {
			return nft.ErrGeneration
		}
	}
	return fmt.Errorf("%w, %d times in a row", nft.ErrGeneration, maxAttempts)
}
