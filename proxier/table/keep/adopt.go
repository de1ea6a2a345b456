package keep

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// A process that starts usually finds a table of ours whose program is the
// wanted one, and nearly all rows. The same is true after a transaction whose
// outcome is unknown. Then a rewrite adopts the table: it compares all rows and
// writes only those that differ, in short transactions, each with whole owners
// as far as they fit. So no transaction is large, also while a program listens
// to nf_tables, for which the kernel builds a message of several KB for each
// row that a transaction changes.
//
//	rows with comments, verdicts, counters   are read by key and compared
//	other rows                               are added: the kernel ignores those
//	                                         that it has. If it has one with other
//	                                         data, the rows of the step are read
//	rows that nothing wants                  are found by the numbers of rows, or by
//	                                         listing, and at the end deleted
//
// Packets meet the old or the new state of a service port, like in an update. A
// large owner is written from its last rows to the first ones, which lead to
// the others.

// adoption is a rewrite that adopts the table in the kernel.
type adoption struct {
	keeper  *Keeper
	tx      *transaction
	found   inspection
	isolate bool
	audit   audit // compares with what the transaction will have committed

	// What the next step writes, and the number of its rows.
	chains []*nft.Chain
	sets   []*nft.Set
	rows   map[*nft.Set][]taggedRow
	size   int
	// careful reports whether steps read all rows: the last ones had some that
	// differ, whose number is differ.
	careful bool
	differ  int
}

// adopt adopts the table in the kernel. The transaction, which describes all
// steps, is nil if that is not possible. If isolate is true, rows of different
// owners are in different messages.
func (k *Keeper) adopt(isolate bool) (*transaction, error) {
	tx := newTransaction(k.link.batch, k.source, newCommitted())
	tx.whole = true
	tx.program = k.source.Program(tx.uses)
	found, err := k.state.inspect(tx.program)
	if err != nil {
		return tx, err
	}
	if found.state != tableOurs {
		return nil, nil
	}
	unplanned := k.planOwners(tx, k.source.Owners(true))
	tx.compare()
	// The first time, the rows are only counted.
	err = tx.write(func() error {
		k.link.resetBatch(false)
		return nil
	})
	if err != nil {
		return tx, err
	}
	a := &adoption{keeper: k, tx: tx, found: found, isolate: isolate, rows: make(map[*nft.Set][]taggedRow)}
	ok, err := a.compareProgram()
	switch {
	case err != nil:
		return tx, err
	case !ok:
		return nil, nil
	}
	klog.V(2).InfoS("Adopting the table", "table", k.link.name(), "owners", len(tx.changes))
	why := k.link.why
	if k.link.doubt == "" { // if it fails, the kernel has rows that were not committed
		k.link.distrust(k.link.cause, "a rewrite was interrupted")
	}
	if err := a.run(); err != nil {
		return tx, err
	}
	k.link.why = why
	k.refuseUnplanned(unplanned)
	k.link.doubt, k.state.verified = "", -1
	k.state.leftovers = make(leftovers)
	for _, o := range found.others {
		k.state.leftovers.add(o.kind, o.name)
	}
	return tx, nil
}

// compareProgram compares the table with what the transaction will have
// committed, apart from owners. ok is false if a chain of the program or a
// chain that owners share differs, or if an owner has a chain that may belong
// to another owner in the kernel.
func (a *adoption) compareProgram() (ok bool, err error) {
	want := newCommitted()
	want.program, want.sets = a.tx.program, a.tx.sets
	for id := range a.tx.demand {
		want.chains[id] = new(chainUse)
	}
	state := *a.keeper.state
	state.have, state.rules, state.structure = want, make(ruleIDs), nil
	a.audit = audit{state: &state, all: true}
	err = a.keeper.link.readOnce(false, func() error {
		return a.audit.compareStructure(want.someChains(a.keeper.source, len(want.chains)))
	})
	if err != nil || !a.audit.now.exists() || a.audit.now.table.Handle != a.found.handle {
		return false, err
	}
	for _, d := range a.audit.found {
		if d.Kind != Extra && !a.addMissing(d, want) {
			return false, nil
		}
	}
	a.audit.found = nil
	for _, c := range a.tx.changes {
		if c.Next == nil || a.keeper.source.HasStableChains(c.Next) {
			continue
		}
		isFound := func(name string) bool { return a.found.has(object{kindChain, name}) }
		if slices.ContainsFunc(c.Next.ChainNames(), isFound) {
			return false, nil
		}
	}
	return true, nil
}

// addMissing adds a set or chain on demand that the kernel does not have to the
// next step. ok is false if a difference is another one.
func (a *adoption) addMissing(d Difference, want *committed) (ok bool) {
	chain := d.chain
	switch form := d.form.(type) {
	case *nft.Set:
		if ok = !a.found.has(d.object) && slices.Contains(a.keeper.source.OnDemand(), form); ok {
			a.sets = append(a.sets, form)
		}
		return ok
	case *nft.Chain:
		chain = form
	}
	if chain == nil || a.found.has(object{kindChain, chain.Name}) {
		return false
	}
	for id := range want.chains {
		if c, _ := a.keeper.source.Chain(id); c.Name == chain.Name {
			a.chains = appendNew(a.chains, c)
			return true
		}
	}
	return false
}

// run makes all steps.
func (a *adoption) run() error {
	a.addRows(a.audit.state.have.ownRows(a.keeper.source), 0) // chains on demand
	a.addRows(a.tx.rows, 0)
	_, shared := a.tx.shared.rows(nil)
	for _, r := range shared {
		a.rows[r.Set] = append(a.rows[r.Set], r)
		if a.size++; a.size >= maxRepairRows {
			if err := a.step(); err != nil {
				return err
			}
		}
	}
	var rows []nft.Row
	for _, c := range a.tx.changes {
		if c.Next == nil {
			continue
		}
		rows = slices.DeleteFunc(c.Next.Rows(rows[:0]), func(r nft.Row) bool { return a.keeper.source.Shared(r.Set) })
		if a.size > 0 && a.size+len(rows) > maxRepairRows {
			if err := a.step(); err != nil {
				return err
			}
		}
		if err := a.addOwner(c, rows); err != nil {
			return err
		}
	}
	if err := a.step(); err != nil {
		return err
	}
	if len(a.found.bases) > 0 {
		a.keeper.link.resetBatch(false)
		a.keeper.deleteBases(a.found)
		if err := a.commitBlind(false); err != nil {
			return err
		}
	}
	return a.deleteExtra()
}

// addOwner adds an owner to the next step, the first rows of a large one last.
func (a *adoption) addOwner(c Change, rows []nft.Row) error {
	if err := a.addChains(c); err != nil {
		return err
	}
	for len(rows) > maxRepairRows {
		n := len(rows) - maxRepairRows
		a.addRows(rows[n:], c.Owner.Tag())
		if rows = rows[:n]; a.size > 0 {
			if err := a.step(); err != nil {
				return err
			}
		}
	}
	a.addRows(rows, c.Owner.Tag())
	return nil
}

// addChains adds the chains of an owner that the kernel does not have, or with
// other rules.
func (a *adoption) addChains(c Change) error {
	if len(c.Next.ChainNames()) == 0 {
		return nil
	}
	for _, chain := range c.Next.Chains() {
		same := a.found.has(object{kindChain, chain.Name})
		if same {
			a.audit.found = nil
			var err error
			if same, err = a.audit.compareRules(DamagedAffinity, c.Owner.String(), chain); err != nil {
				return err
			}
		}
		if !same {
			a.chains = append(a.chains, chain)
		}
	}
	return nil
}

func (a *adoption) addRows(rows []nft.Row, tag uint32) {
	for _, r := range rows {
		a.rows[r.Set] = append(a.rows[r.Set], taggedRow{r, tag})
	}
	a.size += len(rows)
}

// step commits what was added. If another program commits meanwhile, it tries
// again, unless that replaced the table.
func (a *adoption) step() error {
	var err error
	for attempt := range maxAttempts {
		late := attempt >= lateAttempt
		err = a.keeper.link.readOnce(late, func() error { return a.writeStep(a.careful || late) })
		if err == nil && !a.keeper.link.batch.Empty() {
			err = a.commitBlind(late)
		}
		switch {
		case err == nil:
			a.chains, a.sets, a.size = nil, nil, 0
			clear(a.rows)
			a.careful = a.careful && a.differ > 0
			return nil
		case errors.Is(err, nft.ErrGeneration):
			if errHandle := a.keeper.state.checkHandle(a.found); errHandle != nil {
				return errHandle
			}
		case !a.careful && isTaken(err):
			a.careful = true
		default:
			return err
		}
	}
	return err
}

// writeStep writes the step to the batch. If careful is true, it reads all
// rows.
func (a *adoption) writeStep(careful bool) error {
	a.keeper.link.resetBatch(a.isolate)
	a.differ = 0
	for _, set := range a.sets {
		a.keeper.link.batch.AddSet(set)
	}
	tx := newTransaction(a.keeper.link.batch, a.keeper.source, a.keeper.state.have)
	tx.writeChains(a.chains...)
	var added []taggedRow
	byName := func(a, b *nft.Set) int { return strings.Compare(a.Name, b.Name) }
	for _, set := range slices.SortedFunc(maps.Keys(a.rows), byName) {
		rows := a.rows[set]
		if !careful && !isNamed(set, rows) {
			added = append(added, rows...)
			continue
		}
		differ, err := a.differing(rows)
		if err != nil {
			return err
		}
		added, a.differ = append(added, differ...), a.differ+len(differ)
	}
	for _, r := range added {
		a.keeper.link.batch.Tag(r.tag)
		a.keeper.link.batch.AddRow(r.Row)
	}
	a.keeper.link.batch.Tag(0)
	return nil
}

// isNamed reports whether rows of a set must be read, because the kernel would
// keep another comment or verdict.
func isNamed(set *nft.Set, rows []taggedRow) bool {
	return set.Verdicts || set.Counts || slices.ContainsFunc(rows, func(r taggedRow) bool { return r.Comment != "" })
}

// differing returns the rows of a set that the kernel does not have. It deletes
// those in their places.
func (a *adoption) differing(rows []taggedRow) (differ []taggedRow, err error) {
	want := make([]nft.Row, len(rows))
	for i, r := range rows {
		want[i] = r.Row
	}
	found, err := a.keeper.link.kernel.FindRows(a.tx.program, want)
	if err != nil {
		return nil, err
	}
	seen := make(map[nft.Tuple]bool)
	for i, has := range found {
		if has.Matches(want[i]) || seen[want[i].Key] {
			continue
		}
		if seen[want[i].Key] = true; has.Set != nil {
			a.keeper.link.batch.DeleteRow(has)
		}
		differ = append(differ, rows[i])
	}
	return differ, nil
}

// commitBlind commits a batch that may change nothing. Then the kernel does not
// increment the generation.
func (a *adoption) commitBlind(late bool) error {
	if late {
		return a.keeper.commitRepair(late)
	}
	return a.keeper.link.commitThen(func(uint32) error {
		now, err := a.keeper.link.kernel.Generation()
		if err == nil {
			a.keeper.link.seen = a.keeper.link.generation.found(now)
		}
		return err
	})
}

// deleteExtra deletes the rows that nothing wants, in steps.
func (a *adoption) deleteExtra() error {
	extra, err := a.findExtra()
	for err == nil && len(extra) > 0 {
		n := min(len(extra), maxRepairRows)
		a.keeper.link.resetBatch(false)
		for _, r := range extra[:n] {
			a.keeper.link.batch.DeleteRow(r)
		}
		err, extra = a.commitBlind(false), extra[n:]
	}
	return err
}

// findExtra finds the rows that nothing wants, in the sets that have too many
// rows, or whose number of rows the kernel does not report. Large sets with
// indexes are not listed: their rows are probed beyond the last index.
func (a *adoption) findExtra() (extra []nft.Row, err error) {
	sets, err := a.keeper.link.kernel.Sets(a.tx.program)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int, len(sets))
	for _, f := range sets {
		counts[f.Name] = f.Count
	}
	left := make(map[rowKey]nft.Row)
	indexed := make(map[*nft.Set]int) // number of extra rows, or -1
	for _, set := range a.tx.program.Sets {
		count, want := counts[set.Name], a.tx.counts[set]
		switch {
		case set.Dynamic || count == want:
		case a.keeper.source.IsIndexed(set) && max(count, want) > maxListedRows:
			indexed[set] = max(-1, count-want)
		default:
			rows, err := a.keeper.link.kernel.Rows(a.tx.program, set)
			if err != nil {
				return nil, err
			}
			for _, r := range rows {
				left[rowKey{set, r.Key}] = r
			}
		}
	}
	if len(left) == 0 && len(indexed) == 0 {
		return nil, nil
	}
	probes := a.removeWanted(left, indexed)
	for _, r := range left {
		extra, probes = append(extra, r), append(probes, a.keeper.source.After(r)...)
	}
	slices.SortFunc(extra, nft.Row.Compare)
	return a.probe(extra, probes, indexed)
}

// removeWanted removes the wanted rows from a map. It returns the keys that
// follow the wanted rows of sets with indexes.
func (a *adoption) removeWanted(left map[rowKey]nft.Row, indexed map[*nft.Set]int) (probes []nft.Row) {
	remove := func(rows []nft.Row) {
		for i, r := range rows {
			if _, ok := indexed[r.Set]; !ok {
				delete(left, rowKey{r.Set, r.Key})
				continue
			}
			for _, next := range a.keeper.source.After(r) {
				if i+1 == len(rows) || rows[i+1].Set != r.Set || rows[i+1].Key != next.Key {
					probes = append(probes, next)
				}
			}
		}
	}
	remove(a.audit.state.have.ownRows(a.keeper.source))
	remove(a.tx.rows)
	var rows []nft.Row
	for _, c := range a.tx.changes {
		rows = rowsOf(rows[:0], c.Next)
		remove(rows)
	}
	return probes
}

// probe adds the rows of sets with indexes that the kernel has at these keys,
// and at the keys that follow them. It records the rows that it does not find:
// nothing leads to them, and an owner that needs such a key replaces the row.
func (a *adoption) probe(extra, probes []nft.Row, indexed map[*nft.Set]int) ([]nft.Row, error) {
	for len(probes) > 0 {
		var next []nft.Row
		probes = slices.DeleteFunc(probes, func(r nft.Row) bool {
			_, ok := indexed[r.Set]
			return !ok // was listed, or has no other rows
		})
		slices.SortFunc(probes, nft.Row.Compare)
		err := a.audit.eachSet(probes, func(_, found []nft.Row) {
			for _, r := range found {
				if r.Set != nil {
					extra, next = append(extra, r), append(next, a.keeper.source.After(r)...)
					indexed[r.Set]--
				}
			}
		})
		if err != nil {
			return nil, err
		}
		probes = next
	}
	for set, n := range indexed {
		if n > 0 {
			a.tx.have.extra[set] = n
		}
	}
	return extra, nil
}
