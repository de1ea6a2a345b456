package table

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// transaction is a change of the table that is not committed yet. It writes the
// change to a batch, and records what the kernel will have.
type transaction struct {
	to    *nft.Batch
	rules *ruleset.Ruleset
	have  *committed // what the kernel has before

	changes     []change
	whole       bool             // the transaction writes everything
	node        *cluster.Node    // for program
	program     *ruleset.Program // nil if nothing about this node changes, and no set of source ranges
	reservedIDs uint32           // 0 if it does not change

	balancers      map[ruleset.Class]bool // new ones
	affinity       map[*nft.Set]bool
	shared         sharedChange
	rows           map[string]int // change of the number of rows, by set
	added          map[*nft.Set][]nft.Row
	deletedSamples []nft.Row

	// counted are the rows that count packets and that a rewrite found, without
	// those that it has kept. It is nil if the rewrite found no table of ours.
	counted countedRows
	later   []taggedRow // rows that count packets and that are added at the end
}

// change is the change of one service port. before and next are nil if the
// kernel has, or will have, nothing of it.
type change struct {
	port         *portState
	before, next *ruleset.Plan
	err          error // why the wanted plan cannot be written
}

// begin begins a transaction on top of what the kernel has.
func (t *Table) begin(have *committed) *transaction {
	return &transaction{
		to: t.batch, rules: t.rules, have: have, node: t.desired.node,
		balancers: make(map[ruleset.Class]bool), affinity: make(map[*nft.Set]bool),
		shared: make(sharedChange), rows: make(map[string]int), added: make(map[*nft.Set][]nft.Row),
	}
}

func (tx *transaction) addRow(r nft.Row) {
	name := r.Set.Name
	if ruleset.IsSourceSet(name) && tx.have.rows[name]+tx.rows[name] == 0 {
		tx.to.AddSet(r.Set)
	}
	tx.to.AddRow(r)
	tx.recordRow(r)
}

// recordRow records a row that the kernel will have.
func (tx *transaction) recordRow(r nft.Row) {
	tx.rows[r.Set.Name]++
	if s := tx.added[r.Set]; len(s) < maxSamples {
		tx.added[r.Set] = append(s, r)
	}
}

func (tx *transaction) deleteRow(r nft.Row) {
	tx.to.DeleteRow(r)
	tx.rows[r.Set.Name]--
	if slices.ContainsFunc(tx.have.samples[r.Set], sameKeyAs(r)) {
		tx.deletedSamples = append(tx.deletedSamples, r)
	}
}

// reserveIDs writes the row that reserves the ids below next, and many more, if
// they are not reserved yet.
func (tx *transaction) reserveIDs(next uint32) {
	if next <= max(tx.have.reservedIDs, firstID) {
		return
	}
	if before := tx.have.reservedIDs; before != 0 {
		tx.deleteRow(tx.rules.ReservedIDs(before))
	}
	tx.reservedIDs = reservation(next)
	tx.addRow(tx.rules.ReservedIDs(tx.reservedIDs))
}

// reservation returns an id far above next, below which ids are reserved.
func reservation(next uint32) uint32 { return (next/idBlock + 1) * idBlock }

// needBalancer writes the balancer to which a row leads, and the row that leads
// to it, if they do not exist yet.
func (tx *transaction) needBalancer(r nft.Row) {
	class := tx.rules.ClassOf(r)
	if !class.IsBalancer() || tx.have.balancers[class] || tx.balancers[class] {
		return
	}
	tx.balancers[class] = true
	chain, row := tx.rules.Balancer(class)
	tx.writeChains(chain)
	tx.addRow(row)
}

// needAffinitySet writes the affinity set of a plan if it does not exist yet.
func (tx *transaction) needAffinitySet(p *ruleset.Plan) {
	if set := tx.rules.AffinitySet(p); set != nil && !tx.have.affinity[set] && !tx.affinity[set] {
		tx.affinity[set] = true
		tx.to.AddSet(set)
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

// writeAll plans all service ports, and writes the program and the chains and
// rows of the service ports. It calls flush after each part.
func (t *Table) writeAll(tx *transaction, flush func() error) error {
	chains := tx.program.Table.Chains
	base := slices.IndexFunc(chains, func(c *nft.Chain) bool { return c.Hook != nil })
	for _, c := range tx.program.Table.Counters {
		tx.to.AddCounter(c)
	}
	for _, s := range tx.program.Table.Sets {
		tx.to.AddSet(s)
	}
	tx.writeChains(chains[:base]...)
	for _, r := range tx.program.Rows {
		tx.addRow(r)
	}
	// All chains precede the rows: for each chain that uses a map, the kernel
	// walks the rows that the map has.
	for _, s := range t.desired.allServices() {
		t.desired.markDirty(s)
		for _, p := range s.ports {
			c := t.plan(p)
			tx.changes = append(tx.changes, c)
			tx.to.Tag(p.tag)
			tx.needAffinitySet(c.next)
			tx.writeChains(tx.rules.Chains(c.next)...)
			if err := flush(); err != nil {
				return err
			}
		}
	}
	var rows []nft.Row
	for _, c := range tx.changes {
		tx.to.Tag(c.port.tag)
		rows = tx.writeRows(rows[:0], c)
		if err := flush(); err != nil {
			return err
		}
	}
	tx.writeCounted()
	tx.to.Tag(0)
	tx.reserveIDs(t.ids.next)
	tx.writeProgramChanges(tx.program.Table)
	tx.writeChains(chains[base:]...) // last, so that packets see nothing or everything
	return nil
}

// writeRows writes the rows of one service port in a transaction that writes
// everything. It uses the buffer rows and returns it.
func (tx *transaction) writeRows(rows []nft.Row, c change) []nft.Row {
	rows = tx.rules.Rows(rows, c.next)
	for _, r := range rows {
		if tx.rules.IsShared(r.Set) && !tx.shared.add(r, 1, c.port.tag) {
			continue
		}
		if tx.keepCounted(r, c.port.tag) {
			continue
		}
		tx.needBalancer(r)
		tx.addRow(r)
	}
	return rows
}

// sharedRows counts the service ports that have each row of the shared sets
// (see ruleset.Ruleset.IsShared). The kernel has the rows with a count above 0.
type sharedRows map[rowKey]int

// rowKey identifies a row.
type rowKey struct {
	set *nft.Set
	key nft.Tuple
}

// sharedChange is a change of sharedRows that is not committed yet.
type sharedChange map[rowKey]sharedCount

// sharedCount is the change of a count, and the tag of the last service port
// that changed it.
type sharedCount struct {
	n   int
	tag uint32
}

// add changes the count of a row by n. It reports whether the row was not part
// of the change before.
func (c sharedChange) add(r nft.Row, n int, tag uint32) (first bool) {
	k := rowKey{r.Set, r.Key}
	count, known := c[k]
	c[k] = sharedCount{count.n + n, tag}
	return !known
}

// rows returns the rows that the change removes and adds, in order.
func (c sharedChange) rows(have sharedRows) (removed, added []taggedRow) {
	for k, count := range c {
		before, row := have[k], taggedRow{nft.Row{Set: k.set, Key: k.key}, count.tag}
		switch {
		case before == 0 && before+count.n > 0:
			added = append(added, row)
		case before > 0 && before+count.n == 0:
			removed = append(removed, row)
		}
	}
	order := func(a, b taggedRow) int { return a.Compare(b.Row) }
	slices.SortFunc(removed, order)
	slices.SortFunc(added, order)
	return removed, added
}

// apply applies the change to the counts.
func (c sharedChange) apply(have sharedRows) {
	for k, count := range c {
		if have[k] += count.n; have[k] == 0 {
			delete(have, k)
		}
	}
}
