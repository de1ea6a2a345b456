package proxier

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// committed is what the kernel has of a table, as of the last commit that
// succeeded. What it has of the service ports is in their portState.
type committed struct {
	table       *nft.Table // fixed sets and program; nil before the first commit
	nodeRows    []nft.Row  // the rows about this node
	reservedIDs uint32     // the row of reserved-affinity-ids; 0 if there is none
	// nodePortAddrs are the addresses on which NodePorts listen.
	nodePortAddrs []netip.Addr
	balancers     map[string]*balancerUse // by chain
	affinity      map[*nft.Set]struct{}   // the affinity sets that exist
	shared        sharedRows              // how many service ports ask for shared rows
	rows          map[string]int          // number of rows, by set
	samples       map[*nft.Set][]nft.Row  // a few rows of each set that has any
}

func newCommitted() *committed {
	return &committed{
		balancers: make(map[string]*balancerUse),
		affinity:  make(map[*nft.Set]struct{}),
		shared:    make(sharedRows),
		rows:      make(map[string]int),
		samples:   make(map[*nft.Set][]nft.Row),
	}
}

// balancerUse is a balancer that the kernel has, and the number of rows that lead
// to it.
type balancerUse struct {
	balancer
	rows int
}

// maxSamples is the number of rows of a set that are kept to check whether
// another program flushed it. It is more than one, so that a change of one Service
// rarely takes the last.
const maxSamples = 4

// change is what becomes of one service port in a sync.
type change struct {
	port *portState
	next *plan
}

// transaction is a change of the table under way: it writes into a batch, and
// records what the kernel has once the batch is committed.
type transaction struct {
	batch  *nft.Batch
	render *renderer
	have   *committed // what the kernel has before

	changes       []change
	whole         bool       // changes are those of all service ports
	table         *nft.Table // nil if nothing about this node changes
	nodeRows      []nft.Row
	nodePortAddrs []netip.Addr
	reservedIDs   uint32              // 0 if it does not change
	balancers     map[string]balancer // that are new
	uses          map[string]int      // by how many rows the use of a chain grows
	affinity      map[*nft.Set]struct{}
	shared        sharedChange
	rows          map[string]int // by how many rows a set grows
	added         map[*nft.Set][]nft.Row
	lost          []nft.Row // samples that are deleted
}

// begin starts a transaction on top of what the kernel has.
func (b *Backend) begin(have *committed) *transaction {
	b.ids.beginPlanning()
	return &transaction{
		batch: b.batch, render: &b.render, have: have,
		balancers: make(map[string]balancer), uses: make(map[string]int), affinity: make(map[*nft.Set]struct{}),
		shared: make(sharedChange), rows: make(map[string]int), added: make(map[*nft.Set][]nft.Row),
	}
}

// setNode makes the program and the rows about this node part of the transaction.
func (tx *transaction) setNode(b *Backend) {
	program := b.programConfig()
	tx.table, tx.nodeRows, tx.nodePortAddrs = program.table(), b.rowsOfNode(program), b.nodePortDestinations(program)
}

// changesProgram reports whether the transaction changes chains or sets that
// verification reads.
func (tx *transaction) changesProgram() bool {
	return tx.table != nil || len(tx.balancers) > 0 || len(tx.affinity) > 0
}

func (tx *transaction) addRow(r nft.Row) {
	tx.batch.AddRow(r)
	tx.rows[r.Set.Name]++
	if chain := r.Verdict.Chain(); chain != "" {
		tx.uses[chain]++
	}
	if s := tx.added[r.Set]; len(s) < maxSamples {
		tx.added[r.Set] = append(s, r)
	}
}

func (tx *transaction) deleteRow(r nft.Row) {
	tx.batch.DeleteRow(r)
	tx.rows[r.Set.Name]--
	if chain := r.Verdict.Chain(); chain != "" {
		tx.uses[chain]--
	}
	if slices.ContainsFunc(tx.have.samples[r.Set], sameKeyAs(r)) {
		tx.lost = append(tx.lost, r)
	}
}

// reserveIDs writes the row that reserves the ids of session affinity that the
// plans of the transaction use, and many more, if they are not reserved yet.
func (tx *transaction) reserveIDs(next uint32) {
	if next <= max(tx.have.reservedIDs, firstID) {
		return
	}
	set := tx.render.layout.affinityIDs
	row := func(id uint32) nft.Row { return nft.Row{Set: set, Key: nft.Tuple{}.Integer(id)} }
	if before := tx.have.reservedIDs; before != 0 {
		tx.deleteRow(row(before))
	}
	tx.reservedIDs = (next/idBlock + 1) * idBlock
	tx.addRow(row(tx.reservedIDs))
}

// needBalancer writes the balancer of that name, if it is one that does not
// exist yet.
func (tx *transaction) needBalancer(chain string) {
	if chain == "" {
		return
	}
	if _, exists := tx.have.balancers[chain]; exists {
		return
	}
	if _, written := tx.balancers[chain]; written {
		return
	}
	bal, ok := parseBalancer(chain)
	if !ok {
		return
	}
	tx.balancers[chain] = bal
	tx.writeChains(bal.chain(tx.render.layout, tx.render.mark))
}

// needAffinitySet writes the affinity set of a plan, if it needs one that does
// not exist yet.
func (tx *transaction) needAffinitySet(p *plan) {
	set := tx.render.affinitySetOf(p)
	if set == nil {
		return
	}
	if _, exists := tx.have.affinity[set]; exists {
		return
	}
	if _, written := tx.affinity[set]; !written {
		tx.affinity[set] = struct{}{}
		tx.batch.AddSet(set)
	}
}

// writeChains writes chains in place of those of the same names. Their rules may
// refer to each other.
func (tx *transaction) writeChains(chains ...*nft.Chain) {
	for _, c := range chains {
		tx.batch.AddChain(c)
	}
	for _, c := range chains {
		tx.batch.FlushChain(c.Name)
		tx.batch.AddRules(c)
	}
}

// apply records that a transaction was committed.
func (c *committed) apply(tx *transaction) {
	if tx.table != nil {
		c.table, c.nodeRows, c.nodePortAddrs = tx.table, tx.nodeRows, tx.nodePortAddrs
	}
	if tx.reservedIDs != 0 {
		c.reservedIDs = tx.reservedIDs
	}
	for name, bal := range tx.balancers {
		c.balancers[name] = &balancerUse{balancer: bal}
	}
	for chain, n := range tx.uses {
		if use := c.balancers[chain]; use != nil {
			use.rows += n
		}
	}
	for set := range tx.affinity {
		c.affinity[set] = struct{}{}
	}
	tx.shared.apply(c.shared)
	for set, n := range tx.rows {
		c.rows[set] += n
	}
	for _, r := range tx.lost {
		c.samples[r.Set] = slices.DeleteFunc(c.samples[r.Set], sameKeyAs(r))
	}
	for set, rows := range tx.added {
		rows = append(rows, c.samples[set]...)
		c.samples[set] = rows[:min(len(rows), maxSamples)]
	}
}

// sameKeyAs returns a function that reports whether a row has the key of r.
func sameKeyAs(r nft.Row) func(nft.Row) bool {
	return func(o nft.Row) bool { return o.Key == r.Key && o.KeyEnd == r.KeyEnd }
}
