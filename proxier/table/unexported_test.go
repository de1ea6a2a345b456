package table

import "github.com/nftproxy/nftproxy/proxier/table/keep"

// Writes returns the service ports that the present attempt to commit writes,
// by tag, and whether it writes them as they are wanted.
func Writes(t *Table) map[uint32]bool {
	all := make(map[uint32]bool)
	for tag, p := range t.desired.ports {
		next, _ := p.kept.Next(func(keep.Content, bool) (keep.Content, error) { return content{}, nil })
		if p.kept.Pending() && next != p.kept.Have() {
			_, failed := p.kept.Failed()
			all[tag] = !failed
		}
	}
	return all
}

// SkipIDs uses up the ids of session affinity that are reserved.
func SkipIDs(t *Table) { t.ids.next += idBlock }

// Distrust makes the next sync write everything. Verify verifies the table.
func Distrust(t *Table)     { t.keeper.Distrust(keep.RewriteFailure, "benchmark") }
func Verify(t *Table) error { return t.keeper.Verify() }
