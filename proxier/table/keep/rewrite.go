package keep

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// rowBytes is the size of a row in a batch with its part of the message, for
// each row of Source.CountRows. That counts up to twice the rows, as if each
// endpoint were on this node.
const rowBytes = 45

// rewrite writes everything. If it fails, the next sync begins with the wanted
// contents again: what the failures decided was not committed.
func (k *Keeper) rewrite() error {
	k.retry(true)
	used, err := ThreadTimeOf(k.rewriteAgain)
	k.rewriting += used
	k.unsynced = err != nil
	if err != nil {
		for o := range k.state.failing {
			k.Touch(o)
		}
	}
	k.queue.compact()
	return err
}

// rewriteAgain tries to write everything until it succeeds, or until a failure
// ends the sync.
func (k *Keeper) rewriteAgain() (err error) {
	isolate := false
	for range maxAttempts {
		var tx *transaction
		if tx, err = k.adopt(isolate); tx == nil && err == nil {
			tx, err = k.tryRewrite(isolate)
		}
		if err == nil {
			k.failures = 0
			k.link.totals.Rewrites++
			k.link.totals.RewriteCauses[k.link.cause]++
			k.programChanged = false
			if k.state.isVerified() { // no other program committed meanwhile
				k.state.scrubbed = k.link.seen
			}
			return k.state.finish(tx)
		}
		switch k.afterAttempt(tx, phaseRewrite, err, isolate, nil, noOwner) {
		case stepAgain:
		case stepIsolate:
			isolate = true // to find out which owner has the refused row
		default:
			return err
		}
	}
	return err
}

// tryRewrite writes everything, with a substitute for what was refused. If
// isolate is true, rows of different owners are in different messages. The
// error is nft.ErrGeneration if another program replaced the table meanwhile.
func (k *Keeper) tryRewrite(isolate bool) (*transaction, error) {
	tx := newTransaction(k.link.batch, k.source, newCommitted())
	tx.whole = true
	tx.program = k.source.Program(tx.uses)
	program := tx.program // without the sets that rows need
	found, err := k.state.inspect(program)
	if err != nil {
		return tx, err
	}
	unplanned := k.planOwners(tx, k.source.Owners(true))
	klog.V(2).InfoS("Rewriting", "table", k.link.name(), "found", found.state, "owners", len(tx.changes))
	k.link.resetBatch(isolate)
	if found.handle != 0 && found.state != tableOurs {
		k.link.batch.DeleteTable()
	}
	k.link.batch.AddTable(program.Comment)
	if found.state == tableOurs {
		k.empty(program, found)
		tx.found, tx.counted = found.objects, maps.Clone(found.counted)
	}
	if found.state != tableUnused {
		k.link.batch.Grow(k.source.CountRows() * rowBytes)
	}
	tx.compare()
	err = tx.write(func() error { return k.flushCold(&found, isolate) })
	var copies []*nft.Chain
	if found.state == tableForeign {
		copies = takeoverChains(program)
		tx.writeChains(copies...)
		has := func(set string) bool { return found.has(object{kindSet, set}) }
		for _, r := range k.source.Inherit(maps.Keys(tx.sets), has) {
			tx.to.AddRow(r)
		}
	}
	if err == nil {
		k.refuseUnplanned(unplanned)
		err = k.state.commitOver(program, found)
	}
	if _, refused := errors.AsType[*nft.CommitError](err); refused {
		if errHandle := k.state.checkHandle(found); errHandle != nil {
			return tx, fmt.Errorf("%w (%v)", errHandle, err)
		}
	}
	if err != nil {
		return tx, err
	}
	k.link.doubt = ""
	k.state.leftovers = make(leftovers)
	if found.state == tableOurs {
		for _, o := range found.others {
			k.state.leftovers.add(o.kind, o.name)
		}
	}
	for _, c := range copies {
		k.state.leftovers.add(kindChain, c.Name)
	}
	return tx, nil
}

// empty deletes the rules and rows of a table of ours. The sets that packets
// fill, and the sets whose rows count, keep their elements. What is not part of
// the program is deleted by the next transaction: before Linux 6.2 the kernel
// counts references until the end of the transaction.
//
// Other sets are flushed, which loses no packet: the old rules find the new
// rows while the transaction takes effect.
func (k *Keeper) empty(program *nft.Table, found inspection) {
	k.deleteBases(found)
	for _, c := range program.Chains { // also base chains: other programs may have added rules
		k.link.batch.AddChain(c)
		k.link.batch.FlushChain(c.Name)
	}
	flush := make(map[string]bool)
	for _, s := range program.Sets {
		flush[s.Name] = !s.Counts // see keepCounted
	}
	for _, s := range k.source.OnDemand() {
		flush[s.Name] = !s.Dynamic
	}
	for _, o := range found.others {
		if o.kind == kindChain {
			k.link.batch.FlushChain(o.name)
		}
	}
	for o := range found.objects {
		if o.kind == kindSet && flush[o.name] {
			k.link.batch.FlushSet(o.name)
		}
	}
}

// deleteBases deletes base chains of other programs in a table of ours.
func (k *Keeper) deleteBases(found inspection) {
	for _, name := range found.bases {
		klog.InfoS("Deleting a base chain of another program", "table", k.link.name(), "chain", name)
		k.deleteChain(name)
	}
}

// flushCold commits a large batch to a table that no packet uses yet.
func (k *Keeper) flushCold(found *inspection, isolate bool) error {
	if found.state != tableUnused || k.link.batch.Len() < k.limits.ColdBytes {
		return nil
	}
	err := k.link.commitUnless(func() error { return k.state.checkHandle(*found) })
	k.link.resetBatch(isolate)
	if err != nil || found.begun {
		return err
	}
	seen := k.link.seen
	now, err := k.state.readHandle()
	if err == nil && k.link.seen != seen {
		err = nft.ErrGeneration // the table may belong to another program already
	}
	found.begun, found.handle = true, now
	if k.link.doubt == "" {
		k.link.distrust(k.link.cause, "a write of the whole table was interrupted")
	}
	return err
}

// checkHandle returns nft.ErrGeneration if the table in the kernel is another
// one than found.
func (s *state) checkHandle(found inspection) error {
	now, err := s.readHandle()
	if err == nil && now != found.handle {
		err = fmt.Errorf("table %s was replaced: %w", s.link.name(), nft.ErrGeneration)
	}
	return err
}

// readHandle returns the handle of the table in the kernel, 0 if there is none.
func (s *state) readHandle() (handle uint64, err error) {
	err = s.link.read(func() (uint32, error) {
		now, err := s.link.kernel.Generation()
		if err != nil {
			return 0, err
		}
		found, _, err := s.link.kernel.FindTable(s.link.table)
		handle = found.Handle
		return now, err
	})
	return handle, err
}

// commitOver commits a batch that replaces what was found. If another program
// committed meanwhile but did not change what was found, the batch is still
// valid. If another program committed between several transactions, the table
// is verified later.
func (s *state) commitOver(program *nft.Table, found inspection) error {
	err := s.link.commitUnless(func() error {
		now, err := s.inspect(program)
		if err == nil && (now.state != found.state || now.handle != found.handle ||
			found.state != tableUnused && !now.equal(found)) {
			err = nft.ErrGeneration
		}
		return err
	})
	if err == nil && (!found.begun || s.link.seen == found.seen) {
		s.verified = s.link.seen
	}
	return err
}

// A process that starts adopts the table that it finds. inspect determines what
// it is, and tryRewrite replaces its content accordingly (see rewrite.go).

// tableState determines how a rewrite replaces the table in the kernel.
type tableState string // for the log

const (
	// tableUnused means that there is no table, or that no packet uses it. It
	// is written in several transactions. The last one contains the base
	// chains, so that packets see nothing or everything.
	tableUnused tableState = "unused"
	// tableOurs means that the table has our sets and base chains. Its rows and
	// rules are replaced in one transaction. Missing objects are added. Sets
	// that packets fill stay, and rows that count packets keep their numbers.
	tableOurs tableState = "ours"
	// tableForeign means that the table has another form, such as a table of
	// kube-proxy. It is deleted and written in one transaction.
	tableForeign tableState = "foreign"
)

// inspection is what the kernel has under the table's name.
type inspection struct {
	*structure
	handle uint64 // of the table; 0 if it does not exist
	seen   int    // link.seen
	// begun reports whether the first of several transactions replaced the
	// table that was found. handle then identifies the new table.
	begun  bool
	state  tableState
	others []object // that are not part of the program
	bases  []string // names of base chains of other programs
	// counted are the rows of our table that count packets.
	counted countedRows
}

func (i inspection) equal(o inspection) bool {
	return i.state == o.state && i.same(o.structure) && maps.Equal(i.counted, o.counted)
}

// inspect reads what the kernel has under the table's name. The result is of
// the generation that inspect records, or of a later one.
func (s *state) inspect(table *nft.Table) (found inspection, err error) {
	err = s.link.read(func() (now uint32, err error) {
		if now, err = s.link.kernel.Generation(); err == nil {
			found, err = s.readTable(table)
		}
		return now, err
	})
	found.seen = s.link.seen
	return found, err
}

func (s *state) readTable(program *nft.Table) (found inspection, err error) {
	found.state = tableUnused
	if found.structure, err = readStructure(s.link.kernel, program, true); err != nil {
		return found, err
	}
	if found.handle = found.table.Handle; !found.exists() {
		return found, nil
	}
	want := *program
	want.Sets = slices.Clone(want.Sets)
	for _, set := range s.source.OnDemand() {
		if o := (object{kindSet, set.Name}); found.has(o) {
			found.others, want.Sets = append(found.others, o), append(want.Sets, set)
		}
	}
	extra := found.extra(&want)
	for _, o := range extra {
		if found.isForeignBase(o) {
			found.bases = append(found.bases, o.name)
		} else {
			found.others = append(found.others, o)
		}
	}
	hooked := func(f foundObject) bool { return f.chain.Hook != nil }
	foreign := func(d Difference) bool {
		if d.Kind == Missing { // most objects can be added
			isBase := d.object.kind == kindChain && findChain(program, d.object.name).Hook != nil
			return d.object == object{kindSet, s.source.Own()} || isBase
		}
		// The flags of the table are reset, and timeouts are replaced.
		return d.object.name != "" && d.object.kind != kindTimeout
	}
	switch {
	case !slices.ContainsFunc(slices.Collect(maps.Values(found.objects)), hooked):
	case slices.ContainsFunc(found.compare(&want, nil), foreign):
		found.state = tableForeign
	default:
		found.state = tableOurs
		found.counted, err = s.readCounted(program)
	}
	return found, err
}

// isForeignBase reports whether an object that is not part of the program is a
// base chain of another program.
func (s *structure) isForeignBase(o object) bool {
	return s.objects[o].chain.Hook != nil && !strings.HasPrefix(o.name, takeoverPrefix)
}

// readCounted reads the rows of the sets whose rows count. The table is the
// program.
func (s *state) readCounted(table *nft.Table) (countedRows, error) {
	found := make(countedRows)
	for _, set := range table.Sets {
		if !set.Counts {
			continue
		}
		rows, err := s.link.kernel.Rows(table, set)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[rowKey{set, r.Key}] = r.Comment
		}
	}
	return found, nil
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
