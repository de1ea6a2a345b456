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

// rowBuffers hold the rows of an owner before and after a transaction. Updates
// use them again, so that most of them allocate no rows.
type rowBuffers struct{ before, after []nft.Row }

// maxBuffered is the capacity of a buffer above which it is not kept.
const maxBuffered = 4096

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

// rowsOf appends the rows of a content, which may be nil.
func rowsOf(to []nft.Row, c Content) []nft.Row {
	if c == nil {
		return to
	}
	return c.Rows(to)
}

// chainNames returns the names of the chains of a content, which may be nil.
func chainNames(c Content) []string {
	if c == nil {
		return nil
	}
	return c.ChainNames()
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

// rowKey identifies a row.
type rowKey struct {
	set *nft.Set
	key nft.Tuple
}

// row returns the row with a comment.
func (k rowKey) row(comment string) nft.Row { return nft.Row{Set: k.set, Key: k.key, Comment: comment} }

// sameKeyAs returns a function that reports whether a row has the key of r.
func sameKeyAs(r nft.Row) func(nft.Row) bool {
	return func(o nft.Row) bool { return o.Key == r.Key }
}

// taggedRow is a row and the tag of its owner, 0 for a row of no owner.
type taggedRow struct {
	nft.Row
	tag uint32
}

// diffRows returns the rows that are in before only, and those that are in
// after only. A row whose data differs is in both. Most rows are equal and in
// the same order, so only the others are looked up. If one list is empty, the
// results share memory with the other one.
func diffRows(before, after []nft.Row) (removed, added []nft.Row) {
	if len(before) == 0 || len(after) == 0 {
		return before, after
	}
	var moved []nft.Row
	b, a := before, after
	for ordered := true; len(b) > 0 && len(a) > 0; {
		if b[0] == a[0] {
			b, a = b[1:], a[1:]
			continue
		}
		gone, more := 1, 1
		if ordered && !sameRowKey(b[0], a[0]) {
			// An owner with fewer endpoints, or more, has other rows at the end
			// of each frontend.
			if len(b) > len(a) {
				gone, more = indexOfKey(b, a[0]), 0
			} else {
				gone, more = 0, indexOfKey(a, b[0])
			}
			if ordered = gone >= 0 && more >= 0; !ordered {
				continue
			}
		}
		removed, moved = append(removed, b[:gone]...), append(moved, a[:more]...)
		b, a = b[gone:], a[more:]
	}
	removed, moved = append(removed, b...), append(moved, a...)
	left := make(map[nft.Row]bool, len(removed))
	for _, r := range removed {
		left[r] = true
	}
	for _, r := range moved {
		if left[r] {
			delete(left, r)
		} else {
			added = append(added, r)
		}
	}
	return slices.DeleteFunc(removed, func(r nft.Row) bool { return !left[r] }), added
}

// maxGone is the number of rows of which diffRows notices that they are missing
// in one place.
const maxGone = 4096

// indexOfKey returns the index of the first row with the key of another one,
// negative if the first maxGone rows have none.
func indexOfKey(rows []nft.Row, r nft.Row) int {
	return slices.IndexFunc(rows[:min(len(rows), maxGone)], func(o nft.Row) bool { return sameRowKey(o, r) })
}

func sameRowKey(a, b nft.Row) bool { return a.Set == b.Set && a.Key == b.Key }

// sharedRows counts the owners that have each row of the shared sets (see
// Source.Shared), or how such counts change. The kernel has the rows with a
// count above 0.
type sharedRows map[rowKey]sharedCount

// sharedCount is a count, and the tag of the last owner that changed it.
type sharedCount struct {
	n   int32
	tag uint32
}

// add changes the count of a row by n, and returns the change so far.
func (c sharedRows) add(r taggedRow, n int32) (before int32) {
	k := rowKey{r.Set, r.Key}
	before = c[k].n
	c[k] = sharedCount{before + n, r.tag}
	return before
}

// rows returns the rows that a change of what the kernel has removes and adds,
// in order.
func (c sharedRows) rows(have sharedRows) (removed, added []taggedRow) {
	for k, change := range c {
		before, row := have[k].n, taggedRow{k.row(""), change.tag}
		switch {
		case before == 0 && before+change.n > 0:
			added = append(added, row)
		case before > 0 && before+change.n == 0:
			removed = append(removed, row)
		}
	}
	order := func(a, b taggedRow) int { return a.Compare(b.Row) }
	slices.SortFunc(removed, order)
	slices.SortFunc(added, order)
	return removed, added
}

// apply applies a change.
func (c sharedRows) apply(change sharedRows) {
	for k, count := range change {
		if count.n += c[k].n; count.n == 0 {
			delete(c, k)
		} else {
			c[k] = count
		}
	}
}
