package keep

import (
	"maps"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// transaction is a change of the table that is not committed yet, and what the
// kernel will have. See write for the order in which it is written.
type transaction struct {
	to     *nft.Batch
	source Source
	have   *committed  // what the kernel has before: nothing, for a rewrite
	whole  bool        // the transaction writes everything
	most   int         // rows of an owner that change; 0 for no limit
	reused *rowBuffers // of compare

	changes        []Change
	program        *nft.Table
	found          map[object]foundObject // in the table of ours that a rewrite writes again
	replaced       []string               // timeouts that are deleted and added again
	rows           []nft.Row              // of no owner
	removed, added []taggedRow            // of no owner, and of owners in an update
	repaired       []*nft.Chain

	demand         map[uint32]*Account // new chains on demand, and the account that needs each of them
	users          map[uint32]int      // changes of the numbers of rows that need chains on demand
	account        *Account            // that needs all of them, if it is known
	retired        []uint32            // chains on demand that are deleted next
	sets           map[*nft.Set]bool
	shared         sharedRows       // changes of the counts
	counts         map[*nft.Set]int // changes of the numbers of rows
	last           *nft.Set         // to which a row was added
	samples        map[*nft.Set][]nft.Row
	deletedSamples []nft.Row
	counted        countedRows // nil unless a rewrite found our table
	later          []taggedRow // rows that count packets and that are added at the end
}

func newTransaction(to *nft.Batch, source Source, have *committed) *transaction {
	return &transaction{
		to: to, source: source, have: have, program: have.program, rows: have.rows, reused: new(rowBuffers),
		demand: make(map[uint32]*Account), users: make(map[uint32]int),
		sets: make(map[*nft.Set]bool), shared: make(sharedRows),
		counts: make(map[*nft.Set]int), samples: make(map[*nft.Set][]nft.Row),
	}
}

// plan adds the change of an owner. The error is the reason why the owner
// cannot be written as it is wanted.
func (tx *transaction) plan(o Owner) error {
	k := o.Kept()
	next, err := k.Next(func(have Content, remainder bool) (Content, error) {
		return tx.source.Content(o, have, remainder)
	})
	tx.changes = append(tx.changes, Change{Owner: o, Before: k.have, Next: next})
	return err
}

// compare finds the rows to remove and to add. A rewrite adds all rows of
// owners, so it computes them only when they are written.
func (tx *transaction) compare() {
	tx.rows = tx.source.Rows()
	removed, added := diffRows(tx.have.rows, tx.rows)
	tx.change(0, removed, added)
	if tx.whole {
		return
	}
	b := tx.reused
	for i := range tx.changes {
		c := &tx.changes[i]
		if kept := c.Owner.Kept(); kept.fate().instead == theSame {
			c.staged = kept.staged
			continue
		}
		b.before, b.after = c.Owner.Kept().rows(b.before[:0]), rowsOf(b.after[:0], c.Next)
		removed, added := diffRows(b.before, b.after)
		if tx.most > 0 {
			removed, added = tx.cut(c, b.before, removed, added)
		}
		tx.change(c.Owner.Tag(), removed, added)
	}
	if max(cap(b.before), cap(b.after)) > maxBuffered {
		*b = rowBuffers{}
	}
}

// change adds rows to remove and to add. Those of shared sets are counted.
func (tx *transaction) change(tag uint32, removed, added []nft.Row) {
	tx.removed, tx.added = slices.Grow(tx.removed, len(removed)), slices.Grow(tx.added, len(added))
	for _, r := range removed {
		if row := (taggedRow{r, tag}); tx.source.Shared(r.Set) {
			tx.shared.add(row, -1)
		} else {
			tx.removed = append(tx.removed, row)
		}
	}
	for _, r := range added {
		if row := (taggedRow{r, tag}); tx.source.Shared(r.Set) {
			tx.shared.add(row, 1)
		} else {
			tx.added = append(tx.added, row)
		}
	}
}

func (tx *transaction) deleteRow(r taggedRow) {
	tx.to.Tag(r.tag)
	tx.to.DeleteRow(r.Row)
	tx.counts[r.Set]--
	if id, ok := tx.source.ChainOf(r.Row); ok {
		tx.users[id]--
	}
	if slices.ContainsFunc(tx.have.samples[r.Set], sameKeyAs(r.Row)) {
		tx.deletedSamples = append(tx.deletedSamples, r.Row)
	}
}

// addChainOf adds the chain on demand that a row needs, unless it exists.
func (tx *transaction) addChainOf(r taggedRow) {
	id, ok := tx.source.ChainOf(r.Row)
	if _, new := tx.demand[id]; ok && !new && tx.have.chains[id] == nil {
		if tx.demand[id] = tx.account; tx.account == nil {
			tx.demand[id] = tx.accountOf(r.tag)
		}
		chain, row := tx.source.Chain(id)
		tx.to.Tag(r.tag)
		tx.writeChains(chain)
		tx.addRow(taggedRow{row, r.tag})
	}
}

// accountOf returns the account of the owner with a tag, nil if there is none.
func (tx *transaction) accountOf(tag uint32) *Account {
	i := slices.IndexFunc(tx.changes, func(c Change) bool { return c.Owner.Tag() == tag })
	if i < 0 {
		return nil
	}
	return tx.changes[i].Owner.Account()
}

// addRow adds a row, and before it what it needs on demand.
func (tx *transaction) addRow(r taggedRow) {
	tx.addChainOf(r)
	tx.to.Tag(r.tag)
	if r.Set != tx.last && !tx.uses(r.Set) && tx.isOnDemand(r.Set) {
		tx.to.AddSet(r.Set)
	}
	tx.last = r.Set
	tx.to.AddRow(r.Row)
	tx.record(r.Row)
}

// uses reports whether a set has rows after what was written so far.
func (tx *transaction) uses(s *nft.Set) bool { return tx.have.counts[s]+tx.counts[s] > 0 }

// isOnDemand reports whether rows need a set to be written.
func (tx *transaction) isOnDemand(s *nft.Set) bool {
	return !s.Dynamic && slices.Contains(tx.source.OnDemand(), s)
}

// record records a row that the kernel will have.
func (tx *transaction) record(r nft.Row) {
	tx.counts[r.Set]++
	if id, ok := tx.source.ChainOf(r); ok {
		tx.users[id]++
	}
	if s := tx.samples[r.Set]; len(s) < maxSamples {
		tx.samples[r.Set] = append(s, r)
	}
}

// A set whose rows count packets is not flushed by a rewrite: the rows that
// stay keep their numbers. The rewrite deletes the rows that must not stay
// before it adds others, because both can have the same key.

// countedRows are rows of sets whose rows count: their comments by set and key.
type countedRows map[rowKey]string

// keepCounted handles a row of a rewrite. It returns false if the row must be
// written like any other.
func (tx *transaction) keepCounted(r taggedRow) bool {
	if !r.Set.Counts || tx.counted == nil {
		return false
	}
	key := rowKey{r.Set, r.Key}
	if comment, ok := tx.counted[key]; ok && key.row(comment).Matches(r.Row) {
		delete(tx.counted, key)
		tx.record(r.Row)
		return true
	}
	tx.later = append(tx.later, r)
	return true
}

// writeCounted deletes the rows that were found and must not stay, and adds the
// rows that keepCounted left for later.
func (tx *transaction) writeCounted() {
	var gone []nft.Row
	for key, comment := range tx.counted {
		gone = append(gone, key.row(comment))
	}
	slices.SortFunc(gone, nft.Row.Compare)
	tx.to.Tag(0)
	for _, r := range gone {
		tx.to.DeleteRow(r)
	}
	for _, r := range tx.later {
		tx.addRow(r)
	}
}

// writeChains writes chains, and replaces those with the same names. Their
// rules may refer to each other.
func (tx *transaction) writeChains(chains ...*nft.Chain) {
	for _, c := range chains {
		tx.to.AddChain(c)
	}
	for _, c := range chains {
		tx.to.FlushChain(c.Name)
		tx.to.AddRules(c)
	}
}

// apply records that the transaction was committed.
func (tx *transaction) apply() {
	c := tx.have
	c.program, c.rows = tx.program, tx.rows
	now := time.Now()
	for id, by := range tx.demand {
		c.chains[id] = &chainUse{since: now, by: by}
		c.unused++
	}
	for id, rows := range tx.users {
		c.use(id, rows, now)
	}
	for _, id := range tx.retired {
		delete(c.chains, id)
		c.unused--
	}
	maps.Copy(c.sets, tx.sets)
	if tx.whole {
		c.shared = tx.shared
	} else {
		c.shared.apply(tx.shared)
	}
	for set, n := range tx.counts {
		c.counts[set] += n
	}
	for _, r := range tx.deletedSamples {
		c.samples[r.Set] = slices.DeleteFunc(c.samples[r.Set], sameKeyAs(r))
	}
	for set, rows := range tx.samples {
		rows = append(rows, c.samples[set]...)
		c.samples[set] = rows[:min(len(rows), maxSamples)]
	}
	for i := range tx.changes {
		change := &tx.changes[i]
		k := change.Owner.Kept()
		c.ownChains += len(chainNames(change.Next))
		if !tx.whole {
			c.ownChains -= len(chainNames(change.Before))
		}
		k.have, k.staged, k.pending = change.Next, change.staged, change.stage != stageAll
		switch change.stage {
		case stageFirst:
			k.unfinished = change.wanted
		case stageMost:
			k.unfinished = change.Before
		case stageAll:
			if k.staged == nil {
				k.unfinished = nil
			}
		}
		k.version++
		change.Owner.Account().setTook(k, k.took)
	}
}

// noFlush is for transactions that do not end early.
func noFlush() error { return nil }
