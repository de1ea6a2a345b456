package table

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
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
	l.FirstRetry, l.Time = 0, time.Hour
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

// If another program changes the table repeatedly, the repairs are less
// frequent than the changes, and the monitor finds the process.
func TestRepeatedChanges(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	table := newSample(t)
	flush := func() { tabletest.NFT(t, "", "flush", "chain", "ip", ruleset.TableName, "services") }
	end := time.Now().Add(2 * time.Second)
	flushes := 0
	for time.Now().Before(end) {
		flush()
		flushes++
		mustCheck(t, table)
		table.SetService(tabletest.Service("svc", fmt.Sprintf("10.96.0.%d", 100+flushes%100), nil))
		var d *keep.Damage
		if err := table.Sync(); err != nil && !errors.As(err, &d) {
			t.Fatal(err)
		}
	}
	if n := repairsOf(table); n > 5 || n < 2 {
		t.Errorf("got %d repairs after %d changes in 2 s, want 2 to 5", n, flushes)
	}
	for table.Sync() != nil { // the repair waits
		time.Sleep(50 * time.Millisecond)
	}
	mustCheck(t, table)
	checkTable(t, table)

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
	flush()
	tabletest.Sync(t, table)
	found := <-done
	if len(found) != 1 || found[0].Name != "nft" || found[0].PID == 0 {
		t.Fatalf("got processes %+v, want one named nft", found)
	}
}
