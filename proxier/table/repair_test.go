package table

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// mustCheck calls Check, which must not fail.
func mustCheck(t testing.TB, table *Table) {
	t.Helper()
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
}

// atOnce returns limits without pauses.
func atOnce() *keep.Limits {
	l := keep.DefaultLimits()
	l.FirstPause, l.LastPause, l.CheckShare, l.ScrubShare = 0, 0, 0, 0
	l.FirstRetry, l.Time, l.PartTime, l.Spread = 0, time.Hour, time.Hour, time.Hour
	return &l
}

// smallParts returns limits with which most updates have several parts, without
// pauses.
func smallParts() *keep.Limits {
	l := atOnce()
	l.PartCost, l.HeavyCost, l.Time, l.Burst = 20, 20, time.Hour, time.Hour
	return l
}

// repairsOf returns the number of repairs of all kinds.
func repairsOf(table *Table) (n int) {
	for _, count := range table.Stats().Repairs {
		n += count
	}
	return n
}

// The monitor that Tables use names the process that changed a table.
func TestMonitorNamesProcess(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	monitor, err := notify.OpenMonitor()
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	done := make(chan []notify.Committer)
	go func() {
		found, err := monitor.Listen(time.Second)
		if err != nil {
			t.Error(err)
		}
		done <- found
	}()
	time.Sleep(100 * time.Millisecond)
	tabletest.NFT(t, "", "add", "table", "ip", "other")
	if found := <-done; len(found) != 1 || found[0].Name != "nft" || found[0].PID == 0 {
		t.Fatalf("got processes %+v, want one named nft", found)
	}
}
