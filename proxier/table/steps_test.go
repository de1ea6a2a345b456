package table_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// largeSets is the number of Services of largeTable, of 10 endpoints each.
const largeSets = 500

// largeTable returns a table with more rows than a step of a repair writes. It
// records the rows of the largest transaction since the last call of the
// function that it returns.
func largeTable(t *testing.T) (e *engine, largest func() int) {
	t.Helper()
	tabletest.NewNamespace(t)
	e = newEngine(t)
	e.startLarge(t)
	rows := 0
	e.kernels[0].OnCommit = func(b *nft.Batch, commit func() error) error {
		rows = max(rows, b.RowCount())
		return commit()
	}
	return e, func() int {
		last := rows
		rows = 0
		return last
	}
}

// startLarge starts a process with the objects of largeTable.
func (e *engine) startLarge(t *testing.T) {
	t.Helper()
	must.NoError(t, e.start())
	e.pass(largeSets, always(10))
	must.NoError(t, finish(e.tables[0]))
}

// pass passes numbered Services, each with a number of endpoints.
func (e *engine) pass(services int, endpoints func(service int) int) {
	for i := range services {
		svc := tabletest.NumberedService(i)
		e.sinks.SetService(svc)
		e.sinks.SetEndpoints(svc.Name, "slice", numberedEndpoints(i, endpoints(i)))
	}
}

// numberedEndpoints returns n endpoints of a numbered Service.
func numberedEndpoints(service, n int) (all []*cluster.Endpoint) {
	for i := range n {
		all = append(all, tabletest.NumberedEndpoint(0, service*10+i))
	}
	return all
}

func always(n int) func(int) int { return func(int) int { return n } }

// repairAll checks the table until it is not repaired any more.
func repairAll(t *testing.T, of *table.Table) {
	t.Helper()
	must.NoError(t, of.Check())
	for end := time.Now().Add(time.Minute); of.IsRepairing(); {
		if time.Now().After(end) {
			t.Fatal("the repair does not end")
		}
		if err := of.Check(); err != nil {
			t.Log(err)
		}
	}
}

// Rows of a large set are repaired in steps, between which syncs write changes,
// also of Services whose rows are missing. Nothing else is written.
func TestRepairInSteps(t *testing.T) {
	e, largest := largeTable(t)
	of := e.tables[0]
	rewrites := of.Stats().Rewrites
	for _, damage := range []string{
		"flush map ip kube-proxy service-targets", "flush map ip kube-proxy service-classes",
		"flush map ip kube-proxy service-targets; flush map ip kube-proxy class-chains; " +
			"flush chain ip kube-proxy services",
	} {
		tabletest.LoadNFT(t, strings.ReplaceAll(damage, "; ", "\n"))
		must.NoError(t, of.Check())
		for i := 0; of.IsRepairing(); i++ {
			// More and fewer endpoints of Services that are repaired, or not
			// yet.
			e.pass(100+i, always(9+i%3))
			must.NoError(t, finish(of))
			must.NoError(t, of.Check())
		}
		repairAll(t, of)
		e.pass(largeSets, always(10))
		must.NoError(t, finish(of))
		must.NoError(t, of.Check())
		if text, err := differences(of); err != nil || len(text) > 0 {
			t.Fatalf("after %s: got differences %v, %v", damage, text, err)
		}
	}
	if n := largest(); n > 4096+100 || of.Stats().Rewrites != rewrites {
		t.Errorf("got a transaction of %d rows and %d rewrites", n, of.Stats().Rewrites-rewrites)
	}
}

// While other programs commit all the time, a repair goes on: it reads fewer
// rows at a time.
func TestRepairBesideCommits(t *testing.T) {
	e, _ := largeTable(t)
	of := e.tables[0]
	rewrites := of.Stats().Rewrites
	tabletest.LoadNFT(t, "flush map ip kube-proxy service-targets")
	stop := commitAlways(t)
	repairAll(t, of)
	stop()
	must.NoError(t, of.Check())
	if text, err := differences(of); err != nil || len(text) > 0 || of.Stats().Rewrites != rewrites {
		t.Fatalf("got %d rewrites, differences %v, %v", of.Stats().Rewrites-rewrites, text, err)
	}
}

// commitAlways lets another program commit about 1,000 times a second until the
// function that it returns is called.
func commitAlways(t *testing.T) (stop func()) {
	t.Helper()
	conn := nstest.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		other := &nft.Table{Family: nft.IPv4, Name: "other"}
		for {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-time.After(time.Millisecond):
			}
			b := nft.NewBatch(other)
			b.AddTable("")
			b.DeleteTable()
			if err := conn.Commit(b); err != nil {
				done <- err
				return
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		must.NoError(t, <-done)
	}
}

// A process that starts writes only what differs from the table that it finds,
// in steps. If nothing differs, only the reserved ids of session affinity
// change.
func TestRestartInSteps(t *testing.T) {
	e, _ := largeTable(t)
	generation := func() uint32 {
		now, err := e.conn.Generation()
		must.NoError(t, err)
		return now
	}
	handle := func() uint64 {
		found, _, err := e.conn.FindTable(&nft.Table{Family: nft.IPv4, Name: ruleset.TableName})
		must.NoError(t, err)
		return found.Handle
	}
	table, before := handle(), generation()
	e.startLarge(t)
	if n := generation() - before; n > 1 {
		t.Errorf("a restart without a difference made %d commits that changed something", n)
	}
	for i, change := range []func(){
		func() { e.pass(largeSets/2, always(10)) },                        // fewer Services
		func() { e.pass(largeSets, func(n int) int { return 1 + n%20 }) }, // other endpoints
		func() { e.pass(1, always(6000)) },                                // a large one
		func() { e.pass(1, always(4500)) },                                // smaller
	} {
		must.NoError(t, e.start())
		largest := 0
		e.kernels[len(e.kernels)-1].OnCommit = func(b *nft.Batch, commit func() error) error {
			largest = max(largest, b.RowCount())
			return commit()
		}
		change()
		must.NoError(t, finish(e.tables[0]))
		must.NoError(t, e.wanted())
		must.NoError(t, scrub(e.tables[0]))
		if largest > 2*4096 || handle() != table || e.tables[0].Stats().Rewrites != 1 {
			t.Errorf("restart %d: got a transaction of %d rows, another table: %v", i, largest, handle() != table)
		}
	}
}
