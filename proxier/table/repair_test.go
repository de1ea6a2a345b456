package table_test

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

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
		listen := time.Second
		if testing.Short() { // on an emulated machine, nft is slow
			listen *= 4
		}
		found, err := monitor.Listen(listen)
		if err != nil {
			t.Error(err)
		}
		done <- found
	}()
	time.Sleep(100 * time.Millisecond)
	nstest.RunNFT(t, "add table ip other")
	if found := <-done; len(found) != 1 || found[0].Name != "nft" || found[0].PID == 0 {
		t.Fatalf("got processes %+v, want one named nft", found)
	}
}

// Time in which other processes use the processor does not slow the scrubber
// down.
func TestScrubOnBusyNode(t *testing.T) {
	e := newSample(t)
	of := e.tables[0]
	e.limits.CheckShare, e.limits.ScrubShare = 25, 100
	var busy time.Duration
	e.kernels[0].OnFindRows = func(_, _ []nft.Row) {
		const pause = 50 * time.Millisecond
		time.Sleep(pause)
		busy += pause
	}
	nstest.RunNFT(t, "add table ip other")
	var start time.Time
	for first := time.Duration(0); first == 0 || busy == first; time.Sleep(10 * time.Millisecond) {
		if err := of.Check(); err != nil || busy == 0 {
			t.Fatalf("got error %v; the scrubber has read rows for %v", err, busy)
		}
		if first == 0 {
			first, start = busy, time.Now()
		}
		if time.Since(start) > busy*e.limits.CheckShare/2 {
			t.Fatalf("got a long rest after %v without the processor", busy)
		}
	}
}
