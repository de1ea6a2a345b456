package proxier

import "github.com/nftproxy/nftproxy/nft"

// rowCount counts the rows that sets and maps have in the kernel.
type rowCount struct {
	committed map[string]int // by set
	pending   map[string]int // what the batch adds
}

func newRowCount() rowCount {
	return rowCount{committed: make(map[string]int), pending: make(map[string]int)}
}

// commit takes note that the batch was committed.
func (c *rowCount) commit() {
	for set, n := range c.pending {
		c.committed[set] += n
	}
	clear(c.pending)
}

// discard takes note that the batch was not.
func (c *rowCount) discard() { clear(c.pending) }

// addRow puts a row that comes into the batch.
func (b *Backend) addRow(r nft.Row) {
	b.batch.AddRow(r)
	b.rows.pending[r.Set.Name]++
}

// deleteRow puts a row that goes into the batch.
func (b *Backend) deleteRow(r nft.Row) {
	b.batch.DeleteRow(r)
	b.rows.pending[r.Set.Name]--
}
