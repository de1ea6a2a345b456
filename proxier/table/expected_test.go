package table

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// Expected has each row of the wanted plans, and the chains to which they lead.
// It does not change the table.
func TestExpected(t *testing.T) {
	t.Parallel()
	c := tabletest.NewRandom(1, 4, nft.IPv4)
	config := sampleConfig()
	config.Rules.ServiceMetrics = ruleset.ServiceMetricsAll
	table := newUnconnected(t, config)
	for range 200 {
		c.Change(table)
		expected, err := table.Expected(nil)
		must.NoError(t, err)
		ids, rows := table.ids.next, expected.program.Rows
		for _, p := range table.desired.ports {
			plan, _ := table.preview(p, nil)
			rows = table.rules.Rows(rows, plan)
		}
		for _, want := range rows {
			if got, err := expected.Row(want.Set, want.Key); err != nil || got != want {
				t.Fatalf("row %s: found %v, %v", want, got.Set != nil, err)
			}
			if chain := want.Verdict.Chain(); chain != "" {
				if rules, err := expected.Rules(chain); err != nil || len(rules) == 0 {
					t.Fatalf("chain of row %s: got %d rules, %v", want, len(rules), err)
				}
			}
		}
		if table.ids.next != ids || len(table.ids.known)+len(table.ids.sets.sets) > 0 {
			t.Fatal("Expected allocated ids of session affinity")
		}
	}
}

// A function that read could not call in time may run later, while the caller
// already has the error (go test -race).
func TestExpectedLateRead(t *testing.T) {
	table := newUnconnected(t, Config{})
	late, busy := make(chan func(), 2), error(nil)
	expected, err := table.Expected(func(f func()) error {
		if busy != nil {
			late <- f
			return busy
		}
		f()
		return nil
	})
	must.NoError(t, err)
	busy = errors.New("busy")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range cap(late) {
			(<-late)()
		}
	}()
	key := nft.Tuple{}.Addr(netip.MustParseAddr("10.96.0.10")).Proto(unix.IPPROTO_TCP).Port(80)
	for _, name := range []string{"service-classes", "cluster-ips"} {
		set, err := expected.Set(name)
		must.NoError(t, err)
		if row, err := expected.Row(set, key); err != busy || row.Set != nil {
			t.Errorf("set %s: got row %s, %v, want the error", name, row, err)
		}
	}
	<-done
}
