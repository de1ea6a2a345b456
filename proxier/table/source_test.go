package table

import (
	"testing"

	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// What a commit allocates does not depend on the number of Services that wait.
func TestWrittenBesideMany(t *testing.T) {
	allocations := func(waiting int) float64 {
		table := newUnconnected(t, sampleConfig())
		for i := range waiting {
			table.SetService(tabletest.NumberedService(i))
		}
		one := table.desired.services[tabletest.NumberedService(0).Name].ports[0]
		commit := &keep.Commit{Changes: []keep.Change{{Owner: one}}}
		return testing.AllocsPerRun(10, func() {
			if done := table.desired.written(commit); len(done) > 0 {
				t.Errorf("got %d Services that are written, want none", len(done))
			}
		})
	}
	if few, many := allocations(1), allocations(10_000); many > few {
		t.Errorf("got %v allocations beside 10,000 Services, %v beside none", many, few)
	}
}
