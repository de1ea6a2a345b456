package table

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// mustCheck calls Check, which must not fail.
func mustCheck(t testing.TB, table *Table) {
	t.Helper()
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
}

// repairsOf returns the number of repairs of all kinds.
func repairsOf(table *Table) (n int) {
	for _, count := range table.Stats().Repairs {
		n += count
	}
	return n
}

// The first repair does not wait. If another program changes the table
// repeatedly, the repairs wait longer and longer, up to a limit, until the
// changes end.
func TestPauseOfRepairs(t *testing.T) {
	r := repairs{count: make(map[DamageKind]int)}
	now, foreign := time.Unix(1000, 0), 1
	add := func(name string, wantAgain bool, wantWait time.Duration) {
		t.Helper()
		again := r.add(damagedTable, now, foreign)
		if wait := r.wait(now); again != wantAgain || wait != wantWait {
			t.Errorf("%s: got again %v, wait %v; want %v, %v", name, again, wait, wantAgain, wantWait)
		}
	}
	if wait := r.wait(now); wait != 0 {
		t.Errorf("before the first repair: got wait %v, want 0s", wait)
	}
	add("first repair", false, 0)
	for i, ms := range []time.Duration{250, 500, 1000, 2000, 4000, 8000, 10000, 10000} {
		now = now.Add(r.wait(now) + 50*time.Millisecond)
		foreign++
		add(fmt.Sprintf("repair %d", i+2), true, ms*time.Millisecond)
	}
	now = now.Add(r.wait(now))
	add("no other program committed since the last repair", false, 0)
	r.pause = lastPause
	now = now.Add(lastPause + calmTime)
	foreign++
	add("the last repair was long ago", false, 0)
}

// If another program changes the table repeatedly, the repairs are less
// frequent than the changes, and the monitor finds the process.
func TestRepeatedChanges(t *testing.T) {
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
		var d *damage
		if err := table.Sync(); err != nil && !errors.As(err, &d) {
			t.Fatal(err)
		}
	}
	if n := repairsOf(table); n > 5 || n < 2 {
		t.Errorf("got %d repairs after %d changes in 2 s, want 2 to 5", n, flushes)
	}
	time.Sleep(table.observed.repairs.wait(time.Now()))
	tabletest.Sync(t, table)
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
	if _, own := table.observed.generation.ports.Load(found[0].Port); own {
		t.Errorf("got process %+v with the port of the table", found[0])
	}
}
