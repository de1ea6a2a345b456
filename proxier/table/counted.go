package table

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// A set whose rows count packets is not flushed by a rewrite: the rows that
// stay keep their numbers. The rewrite deletes the rows that must not stay
// before it adds others, because both can have the same key.

// countedRows are rows of sets whose rows count: their comments by set and key.
type countedRows map[rowKey]string

type rowKey struct {
	set *nft.Set
	key nft.Tuple
}

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
