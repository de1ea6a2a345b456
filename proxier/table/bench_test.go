package table

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// benchServices is the number of Services of the benchmarks. Each has
// tabletest.ManyEndpoints endpoints.
const benchServices = 10_000

// loaded returns a table that was told of all services of the benchmarks.
func loaded(b *testing.B) *Table {
	tabletest.NewNamespace(b)
	table := newTable(b, sampleConfig(), nft.IPv4)
	table.SetNode(tabletest.Node())
	for i := range benchServices {
		svc := tabletest.NumberedService(i)
		table.SetService(svc)
		for e := range tabletest.ManyEndpoints {
			table.SetEndpoint(svc.Name, tabletest.NumberedEndpoint(i, e))
		}
	}
	return table
}

// measure reports time, allocations, rows and bytes sent of each call of f.
func measure(b *testing.B, table *Table, f func(i int)) {
	before := table.Stats()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		f(i)
	}
	b.StopTimer()
	after := table.Stats()
	b.ReportMetric(float64(after.BytesWritten-before.BytesWritten)/float64(b.N), "sent-B/op")
	b.ReportMetric(float64(after.RowsWritten-before.RowsWritten)/float64(b.N), "rows/op")
	b.ReportMetric(float64((after.CommitTime-before.CommitTime).Microseconds())/float64(b.N), "kernel-µs/op")
}

// BenchmarkFullWrite writes all services from nothing.
func BenchmarkFullWrite(b *testing.B) {
	table := loaded(b)
	measure(b, table, func(int) {
		b.StopTimer()
		if err := deleteTable(table); err != nil {
			b.Fatal(err)
		}
		table.doubt("benchmark")
		b.StartTimer()
		tabletest.Sync(b, table)
	})
}

// BenchmarkRewrite writes all services again, in one transaction, over what is there.
func BenchmarkRewrite(b *testing.B) {
	table := loaded(b)
	tabletest.Sync(b, table)
	measure(b, table, func(int) {
		table.doubt("benchmark")
		tabletest.Sync(b, table)
	})
}

// BenchmarkReplaceEndpoint puts another endpoint in the place of one.
func BenchmarkReplaceEndpoint(b *testing.B) {
	table := loaded(b)
	tabletest.Sync(b, table)
	name, gone := tabletest.NumberedService(77).Name, tabletest.NumberedEndpoint(77, 3)
	measure(b, table, func(i int) {
		come := tabletest.NumberedEndpoint(77, 3)
		come.Addr = netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		table.DeleteEndpoint(name, gone.EndpointKey)
		table.SetEndpoint(name, come)
		tabletest.Sync(b, table)
		gone = come
	})
}

// BenchmarkScale adds an endpoint to a service and takes it away again: two syncs.
func BenchmarkScale(b *testing.B) {
	table := loaded(b)
	tabletest.Sync(b, table)
	name, more := tabletest.NumberedService(77).Name, tabletest.NumberedEndpoint(benchServices, 0)
	measure(b, table, func(int) {
		table.SetEndpoint(name, more)
		tabletest.Sync(b, table)
		table.DeleteEndpoint(name, more.EndpointKey)
		tabletest.Sync(b, table)
	})
}

// BenchmarkAddService adds a service with its endpoints and takes it away again: two syncs.
func BenchmarkAddService(b *testing.B) {
	table := loaded(b)
	tabletest.Sync(b, table)
	svc := tabletest.NumberedService(benchServices)
	measure(b, table, func(int) {
		table.SetService(svc)
		for e := range tabletest.ManyEndpoints {
			table.SetEndpoint(svc.Name, tabletest.NumberedEndpoint(benchServices, e))
		}
		tabletest.Sync(b, table)
		table.DeleteService(svc.Name)
		for e := range tabletest.ManyEndpoints {
			table.DeleteEndpoint(svc.Name, tabletest.NumberedEndpoint(benchServices, e).EndpointKey)
		}
		tabletest.Sync(b, table)
	})
}

// BenchmarkRender renders the rows of one service port.
func BenchmarkRender(b *testing.B) {
	table := loaded(b)
	table.SetNode(tabletest.Node())
	plan := table.plan(table.desired.services[tabletest.NumberedService(77).Name].ports[0]).next
	var rows []nft.Row
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		rows = table.rules.Rows(rows[:0], plan)
	}
}

// BenchmarkDiff finds the difference between the rows of a service port before and after one of its endpoints is replaced.
func BenchmarkDiff(b *testing.B) {
	table := loaded(b)
	table.SetNode(tabletest.Node())
	s := table.desired.services[tabletest.NumberedService(77).Name]
	before := table.rules.Rows(nil, table.plan(s.ports[0]).next)
	table.DeleteEndpoint(s.name, tabletest.NumberedEndpoint(77, 3).EndpointKey)
	table.SetEndpoint(s.name, tabletest.NumberedEndpoint(benchServices, 0))
	after := table.rules.Rows(nil, table.plan(s.ports[0]).next)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		diffRows(before, after)
	}
}

func deleteTable(b *Table) error {
	_, exists, err := b.kernel.FindTable(&nft.Table{Family: b.Family(), Name: ruleset.TableName})
	if err != nil || !exists {
		return err
	}
	b.batch.Reset()
	b.batch.DeleteTable()
	return b.commit()
}

// mixed returns a synced table with the Services of the benchmarks, of which
// every fifth has session affinity.
func mixed(b *testing.B) *Table {
	table := loaded(b)
	for i := 0; i < benchServices; i += 5 {
		svc := tabletest.NumberedService(i)
		svc.AffinityTimeout = 3 * time.Hour
		table.SetService(svc)
	}
	tabletest.Sync(b, table)
	return table
}

// BenchmarkForeignCommits is one second with 20 commits of another program, each
// followed by a check as SyncLoop makes it, and one change of our own. It reports
// the CPU time of the checks as a part of a core, and the time of the change.
func BenchmarkForeignCommits(b *testing.B) {
	table := mixed(b)
	other, err := nft.Open()
	if err != nil {
		b.Fatal(err)
	}
	defer other.Close()
	foreign := &nft.Table{Family: nft.IPv4, Name: "other"}
	name, gone := tabletest.NumberedService(77).Name, tabletest.NumberedEndpoint(77, 3)
	var checks, changes time.Duration
	rewrites := table.stats.Rewrites
	b.ResetTimer()
	for i := range b.N {
		for range 20 {
			next := time.Now().Add(50 * time.Millisecond)
			batch := nft.NewBatch(foreign)
			batch.AddTable("")
			batch.DeleteTable()
			if err := other.Commit(batch); err != nil {
				b.Fatal(err)
			}
			start := threadTime(b)
			check(b, table)
			checks += threadTime(b) - start
			time.Sleep(time.Until(next))
		}
		come := tabletest.NumberedEndpoint(77, 3)
		come.Addr = netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		table.DeleteEndpoint(name, gone.EndpointKey)
		table.SetEndpoint(name, come)
		start := time.Now()
		tabletest.Sync(b, table)
		changes += time.Since(start)
		gone = come
	}
	b.StopTimer()
	b.ReportMetric(100*checks.Seconds()/b.Elapsed().Seconds(), "%core")
	b.ReportMetric(float64(changes.Microseconds())/float64(b.N), "change-µs/op")
	b.ReportMetric(float64(table.stats.Rewrites-rewrites), "rewrites")
}

// threadTime returns the CPU time that the calling thread has used, in which the
// kernel's work for netlink requests is included.
func threadTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkVerify verifies an intact table.
func BenchmarkVerify(b *testing.B) {
	table := mixed(b)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := table.verify(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScrub reads all rows and the chains of session affinity, without the
// rests in between.
func BenchmarkScrub(b *testing.B) {
	table := mixed(b)
	b.ResetTimer()
	for i := range b.N {
		table.observed.generation.foreign, table.observed.verified = i+1, i+1
		scrubAll(b, table)
	}
}
