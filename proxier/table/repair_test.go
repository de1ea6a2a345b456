package table

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The first repair is at once; those of a table that another program changes again
// and again wait longer and longer, up to a limit, until it is left alone.
func TestRepairsBackOff(t *testing.T) {
	r := repairs{count: make(map[DamageKind]int)}
	now := time.Unix(1000, 0)
	foreign := 1
	if r.wait(now) != 0 || r.add(damagedTable, now, foreign) {
		t.Error("the first repair waits, or follows others")
	}
	for i, want := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, lastPause, lastPause} {
		now = now.Add(r.wait(now) + 50*time.Millisecond)
		foreign++
		if !r.add(damagedTable, now, foreign) {
			t.Errorf("repair %d does not follow others", i)
		}
		if got := r.wait(now); got != want {
			t.Errorf("repair %d: wait %v, want %v", i, got, want)
		}
	}
	if r.add(damagedRow, now, foreign) {
		t.Error("a repair of the same commit is a fight")
	}
	r.pause = lastPause
	now = now.Add(lastPause + calmTime)
	foreign++
	if r.add(damagedTable, now, foreign) || r.wait(now) != 0 {
		t.Error("a repair after a calm time follows others")
	}
}

// Another program that keeps changing the table is answered ever less often, and
// the log names it.
func TestFight(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	flush := func() { tabletest.NFT(t, "", "flush", "chain", "ip", ruleset.TableName, "services") }
	end := time.Now().Add(2 * time.Second)
	flushes := 0
	for time.Now().Before(end) {
		flush()
		flushes++
		check(t, table)
		var tampered *damage
		table.SetService(tabletest.Service("svc", fmt.Sprintf("10.96.0.%d", 100+flushes%100), nil))
		if err := table.Sync(); err != nil && !errors.As(err, &tampered) {
			t.Fatal(err)
		}
	}
	if n := repairsOf(table); n > 5 || n < 2 {
		t.Errorf("%d repairs after %d changes in 2 s, want 2 to 5", n, flushes)
	}
	time.Sleep(table.observed.repairs.wait(time.Now()))
	tabletest.Sync(t, table)
	check(t, table)
	checkTable(t, table)

	monitor, err := nft.OpenMonitor()
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	done := make(chan []nft.Committer)
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
	if len(found) != 1 || found[0].Name != "nft" || found[0].PID == 0 || table.observed.generation.ours[found[0].Port] {
		t.Errorf("heard of %+v, want one process nft", found)
	}
}
