package table

import (
	"errors"
	"io/fs"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// keepOwners lets service ports keep the frontends that an earlier process gave
// them, if neither the kind of a claim nor the age of a Service determines the
// owner. It runs before the first sync, when the kernel still has the rows of
// that process.
func (t *Table) keepOwners() {
	if t.started {
		return
	}
	t.started = true
	rows := make(map[*nft.Set][]nft.Row)
	frontends := make(map[*nft.Set][]ruleset.Frontend)
	for _, f := range t.desired.claims.undecided() {
		row := t.rules.ClassRow(f)
		rows[row.Set], frontends[row.Set] = append(rows[row.Set], row), append(frontends[row.Set], f)
	}
	for set, want := range rows {
		found, err := t.keeper.Kernel().FindRows(t.table(), want)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			klog.ErrorS(err, "Failed to read which Services had their addresses before the start", "table", t.name())
		}
		for i, row := range found {
			had := func(p *portState) bool {
				if row.Set == nil { // no NodePort had it
					return p.check
				}
				want := row
				want.Comment = p.String()
				return row.Matches(want)
			}
			t.desired.claims.prefer(frontends[set][i], had, t.desired.markDirty)
		}
	}
}
