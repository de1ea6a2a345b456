package proxier

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// change is what becomes of one service port in a sync.
type change struct {
	port *portState
	next *plan
}

// transaction is what one transaction will have changed, to be remembered once it is committed.
type transaction struct {
	changes   []change
	shared    sharedChange
	balancers []string
	table     *nft.Table // nil if nothing about this node changed
	nodeRows  []nft.Row
	// nodePortAddrs are the addresses on which NodePorts listen, if table is given.
	nodePortAddrs []netip.Addr
}

// setNode takes the program and the rows that depend on this node into the transaction.
func (tx *transaction) setNode(b *Backend) {
	program := b.programConfig()
	tx.table, tx.nodeRows, tx.nodePortAddrs = program.table(), b.rowsOfNode(program), b.nodePortDestinations(program)
}

// update writes what changed since the last sync, in one transaction.
func (b *Backend) update() error {
	b.ids.expire()
	b.retryDirty()
	for {
		tx := &transaction{changes: b.changes(), shared: make(sharedChange)}
		if b.newNode {
			tx.setNode(b)
			if len(tx.table.Sets) != len(b.table.Sets) {
				b.doubt("sets of the table change")
				return b.rewrite()
			}
		}
		b.write(tx)
		err := b.commitGuarded()
		switch {
		case err == nil:
			b.discard(tx.changes)
			for _, c := range tx.changes {
				b.noLocal.add(c.port.committed, -1)
				b.noLocal.add(c.next, 1)
			}
			b.remember(tx)
			b.prune()
			return nil
		case errors.Is(err, errTampered):
			b.repair(err)
			return b.rewrite()
		case b.refuseRetried(err):
			continue
		}
		// The kernel does not have what it should have, or it refuses something. Which of both, the rewrite will tell.
		klog.InfoS("Update failed, writing the whole table", "family", b.layout.family, "err", err)
		b.doubt("update failed")
		return b.rewrite()
	}
}

// changes makes the plans of all service ports that may have changed.
func (b *Backend) changes() []change {
	var out []change
	for _, s := range sorted(slices.Collect(maps.Keys(b.dirty))) {
		for _, p := range s.ports {
			out = append(out, change{p, b.makePlan(p)})
		}
	}
	return out
}

// write puts the difference between what the kernel has and the transaction into the batch: first chains that come or change,
// then all rows that go, then all that come, so that a row can go over from one service port to another.
func (b *Backend) write(tx *transaction) {
	b.resetBatch(false)
	var gone, come []taggedRow
	if tx.table != nil {
		b.writeProgramChanges(tx.table)
		gone, come = tagged(diffRows(b.nodeRows, tx.nodeRows))
	}
	var before, after []nft.Row
	for _, c := range tx.changes {
		b.batch.Tag(c.port.tag)
		b.writeChainChanges(c)
		before, after = b.render.rows(before[:0], c.port.committed), b.render.rows(after[:0], c.next)
		goneHere, comeHere := diffRows(before, after)
		for _, r := range goneHere {
			if b.layout.isShared(r.Set) {
				tx.shared.add(r, -1, c.port.tag)
			} else {
				gone = append(gone, taggedRow{r, c.port.tag})
			}
		}
		for _, r := range comeHere {
			if b.layout.isShared(r.Set) {
				tx.shared.add(r, 1, c.port.tag)
			} else {
				come = append(come, taggedRow{r, c.port.tag})
			}
		}
	}
	goneShared, comeShared := tx.shared.rows(b.shared)
	for _, r := range append(gone, goneShared...) {
		b.batch.Tag(r.tag)
		b.deleteRow(r.Row)
	}
	for _, r := range append(comeShared, come...) {
		b.batch.Tag(r.tag)
		if name := b.writeBalancer(r.Verdict.Chain()); name != "" {
			tx.balancers = append(tx.balancers, name)
		}
		b.addRow(r.Row)
	}
	for _, name := range tx.balancers { // not there before the commit
		delete(b.balancers, name)
	}
}

// taggedRow is a row and the tag of the service port that it is of, 0 if of none.
type taggedRow struct {
	nft.Row
	tag uint32
}

func tagged(gone, come []nft.Row) (taggedGone, taggedCome []taggedRow) {
	for _, r := range gone {
		taggedGone = append(taggedGone, taggedRow{Row: r})
	}
	for _, r := range come {
		taggedCome = append(taggedCome, taggedRow{Row: r})
	}
	return taggedGone, taggedCome
}

// writeBalancer puts the balancer of that name into the batch, if it is one and new, and returns its name then.
func (b *Backend) writeBalancer(chain string) string {
	if chain == "" {
		return ""
	}
	if _, known := b.balancers[chain]; known {
		return ""
	}
	bal, ok := parseBalancer(chain)
	if !ok {
		return ""
	}
	c := bal.chain(b.layout, b.render.mark)
	b.batch.AddChain(c)
	b.batch.FlushChain(c.Name)
	b.batch.AddRules(c)
	b.balancers[chain] = struct{}{}
	return chain
}

// writeChainChanges puts the chains of a service port that come or change into the batch. Those that go become garbage.
func (b *Backend) writeChainChanges(c change) {
	before := make(map[string]*nft.Chain)
	for _, chain := range b.render.chains(c.port.committed) {
		before[chain.Name] = chain
	}
	b.writeChains(slices.DeleteFunc(b.render.chains(c.next), func(chain *nft.Chain) bool {
		old := before[chain.Name]
		return old != nil && nft.SameProgram(old, chain)
	}))
}

// writeChains puts chains into the batch, in place of those of the same names. Their rules may refer to each other.
func (b *Backend) writeChains(chains []*nft.Chain) {
	for _, c := range chains {
		b.batch.AddChain(c)
	}
	for _, c := range chains {
		b.batch.FlushChain(c.Name)
		b.batch.AddRules(c)
	}
}

// writeProgramChanges puts the chains of the program that change into the batch.
func (b *Backend) writeProgramChanges(table *nft.Table) {
	for i, c := range table.Chains {
		if !nft.SameProgram(b.table.Chains[i], c) {
			b.batch.FlushChain(c.Name)
			b.batch.AddRules(c)
		}
	}
}

// diffRows returns the rows that are in before only, and those that are in after only. A row whose data differs is in both.
func diffRows(before, after []nft.Row) (gone, come []nft.Row) {
	left := make(map[nft.Row]struct{}, len(before))
	for _, r := range before {
		left[r] = struct{}{}
	}
	for _, r := range after {
		if _, same := left[r]; same {
			delete(left, r)
		} else {
			come = append(come, r)
		}
	}
	for _, r := range before {
		if _, is := left[r]; is {
			gone = append(gone, r)
		}
	}
	return gone, come
}

// remember takes note of what was committed.
func (b *Backend) remember(tx *transaction) {
	tx.shared.apply(b.shared)
	for _, name := range tx.balancers {
		b.balancers[name] = struct{}{}
	}
	before := b.nodePortAddrs
	if tx.table != nil {
		b.table, b.nodeRows, b.nodePortAddrs, b.newNode = tx.table, tx.nodeRows, tx.nodePortAddrs, false
		b.tellHealthAddrs()
		b.observe()
	}
	b.cleanFlows(tx.changes, before)
	b.udp.update(tx.changes)
	for _, c := range tx.changes {
		b.rememberPlan(c)
	}
	b.tellHealth(b.dirty)
	for s := range b.dirty {
		b.forget(s)
	}
	b.dirty = make(map[*serviceState]struct{}) // going through an emptied map costs what it once held
}

func (b *Backend) rememberPlan(c change) {
	b.ids.release(c.port.committed, c.next)
	c.port.committed = c.next
	if c.next != nil {
		b.accept(c.port)
	}
}
