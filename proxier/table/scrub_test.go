package table

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// scrubAll calls Check until the scrubber has completed a pass.
func scrubAll(t testing.TB, table *Table) {
	t.Helper()
	usual := *table.config.Limits
	defer func() { *table.config.Limits = usual }()
	*table.config.Limits = *atOnce()
	for range 1_000_000 {
		mustCheck(t, table)
		if table.keeper.Scrubbed() {
			return
		}
	}
	t.Fatal("the scrubber does not complete a pass")
}

// Time in which other processes use the processor does not slow the scrubber
// down.
func TestScrubOnBusyNode(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	table := newSample(t)
	table.config.Limits.CheckShare, table.config.Limits.ScrubShare = 25, 100
	var busy time.Duration
	injectFaults(table).OnFindRows = func(_, _ []nft.Row) {
		const pause = 50 * time.Millisecond
		time.Sleep(pause)
		busy += pause
	}
	tabletest.NFT(t, "", "add", "table", "ip", "other")
	mustCheck(t, table)
	if busy == 0 {
		t.Fatal("the scrubber has not read rows")
	}
	for first, start := busy, time.Now(); busy == first; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > busy*table.config.Limits.CheckShare/2 {
			t.Fatalf("got a long rest after %v without the processor", busy)
		}
		mustCheck(t, table)
	}
}
