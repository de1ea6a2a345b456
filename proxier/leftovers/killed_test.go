package leftovers

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// A removal that is killed leaves each legacy table either as it was or
// without leftovers, and a later removal completes it.
func TestKilledRemoval(t *testing.T) {
	enter(t)
	load(t, nft.IPv4, "legacy", fileOf(nft.IPv4, "-without"))
	without := savedTables(t)
	restore := func() {
		load(t, nft.IPv4, "legacy", fileOf(nft.IPv4, ""))
		iptables(t, nft.IPv4, "legacy", "-restore", kubeRules(100, 10), "--noflush")
	}
	restore()
	before := savedTables(t)
	begin := time.Now()
	if err := removalProcess(t.Context()).Run(); err != nil {
		t.Fatal(err)
	}
	duration := time.Since(begin)
	if got := savedTables(t); got["nat"] != without["nat"] {
		t.Fatalf("got table nat\n%s\nwant\n%s", got["nat"], without["nat"])
	}
	changed, unchanged := 0, 0
	for range rounds(12) {
		restore()
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(duration))
		_ = removalProcess(ctx).Run() // at the end of the context, it is killed
		cancel()
		for name, got := range savedTables(t) {
			switch got {
			case before[name]:
				unchanged++
			case without[name]:
				changed++
			default:
				t.Fatalf("got table %s\n%s\nwant it as before or without leftovers", name, got)
			}
		}
	}
	t.Logf("%d tables were as before, %d without leftovers", unchanged, changed)
	if !testing.Short() && (unchanged == 0 || changed == 0) {
		t.Errorf("%d tables were as before, %d without leftovers, want some of both", unchanged, changed)
	}
	remove(t)
	for name, got := range savedTables(t) {
		if got != without[name] {
			t.Errorf("after a removal: got table %s\n%s\nwant\n%s", name, got, without[name])
		}
	}
}

// savedTables returns the legacy tables of IPv4 by name, in the format of
// saved.
func savedTables(t testing.TB) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for table := range strings.SplitSeq(saved(t, nft.IPv4, "legacy"), "*") {
		if name, _, ok := strings.Cut(table, "\n"); ok {
			found[name] = table
		}
	}
	return found
}
