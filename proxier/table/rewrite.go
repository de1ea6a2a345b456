package table

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// rowBytes is the size of a row in a batch with its part of the message, for
// each row of countRows. That counts up to twice the rows, as if each endpoint
// were on this node.
const rowBytes = 45

// RewriteCause is a cause of rewrites. It is a label of metrics.
type RewriteCause string

// The causes of rewrites.
const (
	rewriteStart   RewriteCause = "start"   // of the process
	rewriteNode    RewriteCause = "node"    // a change of the node needs other sets
	rewriteFailure RewriteCause = "failure" // an update failed, or its outcome is unknown
	rewriteDamage  RewriteCause = "damage"  // another program changed the table
	rewriteUnused  RewriteCause = "unused"  // many balancers may be unused
)

// RewriteCauses returns all causes of rewrites.
func RewriteCauses() []RewriteCause {
	return []RewriteCause{rewriteStart, rewriteNode, rewriteFailure, rewriteDamage, rewriteUnused}
}

// rewrite writes everything.
func (t *Table) rewrite() (err error) {
	t.retryRefused()
	isolate := false
	for range maxAttempts {
		var tx *transaction
		if tx, err = t.tryRewrite(isolate); err == nil {
			return t.rewritten(tx)
		}
		switch t.afterAttempt(phaseRewrite, err, isolate) {
		case stepAgain:
		case stepIsolate:
			isolate = true // to find out which service port has the refused row
		default:
			return err
		}
	}
	return err
}

// rewritten records a rewrite that was committed.
func (t *Table) rewritten(tx *transaction) error {
	t.batch = newBatch(t.Family()) // the old one has large buffers
	t.failures = 0
	t.stats.Rewrites++
	t.stats.RewriteCauses[t.rewriteCause]++
	return t.updated(tx)
}

// tryRewrite writes everything, with a substitute for what was refused. If
// isolate is true, rows of different service ports are in different messages.
// The error is nft.ErrGeneration if another program replaced the table
// meanwhile.
func (t *Table) tryRewrite(isolate bool) (*transaction, error) {
	tx := t.begin(newCommitted())
	t.ids.forgetOld()
	tx.whole = true
	tx.program = t.rules.MakeProgram(t.desired.node)
	found, err := t.inspect(tx.program.Table)
	if err != nil {
		return nil, err
	}
	klog.V(2).InfoS("Rewriting", "table", t.name(), "found", found.state, "services", len(t.desired.services))
	t.resetBatch(isolate)
	table := tx.program.Table // without the sets that rows need
	if found.handle != 0 && found.state != tableOurs {
		t.batch.DeleteTable()
	}
	t.batch.AddTable(table.Comment)
	var copies []*nft.Chain
	switch found.state {
	case tableOurs:
		t.emptyTable(table, found)
		tx.counted = maps.Clone(found.counted)
	case tableForeign:
		copies = takeoverChains(table)
	}
	if found.state != tableUnused {
		t.batch.Grow(t.desired.countRows() * rowBytes)
	}
	flush := func() error { return t.flushCold(&found, isolate) }
	if err = t.writeAll(tx, flush); err == nil {
		tx.writeChains(copies...)
		if found.state == tableForeign {
			t.addEarlierClients(tx, found)
		}
		t.refuseUnplanned(tx)
		err = t.commitOver(table, found)
	}
	if _, refused := errors.AsType[*nft.CommitError](err); refused {
		if errHandle := t.checkHandle(found); errHandle != nil {
			return nil, fmt.Errorf("%w (%v)", errHandle, err)
		}
	}
	if err != nil {
		return nil, err
	}
	t.inDoubt = ""
	t.unused = make(unused)
	if found.state == tableOurs {
		t.unused.add(found.others...)
	}
	for _, c := range copies {
		t.unused.add(object{kindChain, c.Name})
	}
	return tx, nil
}

// emptyTable deletes the rules and rows of a table of ours. The affinity sets,
// which packets fill, and the sets whose rows count keep their elements. What
// is not part of the program is deleted by the next transaction: before Linux
// 6.2 the kernel counts references until the end of the transaction.
//
// Other sets are flushed, which loses no packet: the old rules find the new
// rows while the transaction takes effect.
func (t *Table) emptyTable(table *nft.Table, found inspection) {
	for _, c := range table.Chains { // also base chains: other programs may have added rules
		t.batch.AddChain(c)
		t.batch.FlushChain(c.Name)
	}
	for _, o := range found.others {
		switch {
		case o.kind == kindChain:
			t.batch.FlushChain(o.name)
		case o.kind == kindSet && ruleset.IsSourceSet(o.name):
			t.batch.FlushSet(o.name)
		}
	}
	for _, s := range table.Sets {
		if found.has(object{kindSet, s.Name}) && !s.Counts { // see keepCounted
			t.batch.FlushSet(s.Name)
		}
	}
}

// maxColdBytes is the size at which a transaction ends while no packet uses the
// table: about 20,000 rows. The kernel can stall while a map grows within one
// huge transaction.
const maxColdBytes = 1200 << 10

// flushCold commits a large batch to a table that no packet uses yet.
func (t *Table) flushCold(found *inspection, isolate bool) error {
	if found.state != tableUnused || t.batch.Len() < t.coldBytes {
		return nil
	}
	err := t.commitUnless(func() error { return t.checkHandle(*found) })
	t.resetBatch(isolate)
	if err != nil || found.begun {
		return err
	}
	seen := t.observed.seen
	now, err := t.readHandle()
	if err == nil && t.observed.seen != seen {
		err = nft.ErrGeneration // the table may belong to another program already
	}
	found.begun, found.handle = true, now
	if t.inDoubt == "" {
		t.doubt(t.rewriteCause, "a write of the whole table was interrupted")
	}
	return err
}

// checkHandle returns nft.ErrGeneration if the table in the kernel is another
// one than found.
func (t *Table) checkHandle(found inspection) error {
	now, err := t.readHandle()
	if err == nil && now != found.handle {
		err = fmt.Errorf("table %s was replaced: %w", t.name(), nft.ErrGeneration)
	}
	return err
}

// readHandle returns the handle of the table in the kernel, 0 if there is none.
func (t *Table) readHandle() (handle uint64, err error) {
	err = t.observed.read(func() (uint32, error) {
		now, err := t.kernel.Generation()
		if err != nil {
			return 0, err
		}
		found, _, err := t.kernel.FindTable(&nft.Table{Family: t.Family(), Name: ruleset.TableName})
		handle = found.Handle
		return now, err
	})
	return handle, err
}

func (t *Table) resetBatch(isolate bool) {
	t.batch.Reset()
	if isolate {
		t.batch.Isolate()
	}
}

// commitOver commits a batch that replaces what was found. If another program
// committed meanwhile but did not change what was found, the batch is still
// valid. If another program committed between several transactions, the table
// is verified later.
func (t *Table) commitOver(table *nft.Table, found inspection) error {
	err := t.commitUnless(func() error {
		now, err := t.inspect(table)
		if err == nil && (now.state != found.state || now.handle != found.handle ||
			found.state != tableUnused && !now.equal(found)) {
			err = nft.ErrGeneration
		}
		return err
	})
	if err == nil && (!found.begun || t.observed.seen == found.seen) {
		t.observed.verified = t.observed.seen
	}
	return err
}

// A set whose rows count packets is not flushed by a rewrite: the rows that
// stay keep their numbers. The rewrite deletes the rows that must not stay
// before it adds others, because both can have the same key.

// countedRows are rows of sets whose rows count: their comments by set and key.
type countedRows map[rowKey]string

// row returns the row with a comment.
func (k rowKey) row(comment string) nft.Row { return nft.Row{Set: k.set, Key: k.key, Comment: comment} }

// readCounted reads the rows of the sets whose rows count. The table is the
// program.
func (t *Table) readCounted(table *nft.Table) (countedRows, error) {
	found := make(countedRows)
	for _, set := range table.Sets {
		if !set.Counts {
			continue
		}
		rows, err := t.kernel.Rows(table, set)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[rowKey{set, r.Key}] = r.Comment
		}
	}
	return found, nil
}

// keepCounted handles a row of a rewrite. It returns false if the row must be
// written like any other.
func (tx *transaction) keepCounted(r nft.Row, tag uint32) bool {
	if !r.Set.Counts || tx.counted == nil {
		return false
	}
	key := rowKey{r.Set, r.Key}
	if comment, ok := tx.counted[key]; ok && key.row(comment).Matches(r) {
		delete(tx.counted, key)
		tx.recordRow(r)
		return true
	}
	tx.later = append(tx.later, taggedRow{r, tag})
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
		tx.to.Tag(r.tag)
		tx.addRow(r.Row)
	}
}

// takeoverPrefix begins the names of the chains that takeoverChains returns.
const takeoverPrefix = "takeover-"

// takeoverChains returns a copy of each base chain, with the next higher
// priority. A transaction that replaces a foreign table adds them, and the next
// one deletes them.
//
// The kernel calls a new base chain before an old one of the same priority. A
// packet can pass the new chain before the transaction takes effect, when it
// has no rules yet, and the old chain afterwards, when it has no rules any
// more. Such a packet passes the copy.
func takeoverChains(program *nft.Table) (copies []*nft.Chain) {
	for _, c := range program.Chains {
		if c.Hook != nil {
			hook := *c.Hook
			hook.Priority++
			copies = append(copies, &nft.Chain{Name: takeoverPrefix + c.Name, Hook: &hook, Rules: c.Rules})
		}
	}
	return copies
}
