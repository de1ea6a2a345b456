package table_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// benchServices is the number of Services of the benchmarks. Each has
// tabletest.ManyEndpoints endpoints.
const benchServices = 10_000

// sampleConfig returns the configuration for the sample Services.
func sampleConfig() table.Config { return table.Config{Rules: tabletest.Rules()} }

// loaded returns a Table whose desired state contains so many Services, each
// with so many endpoints.
func loaded(b *testing.B, config table.Config, services, endpoints int) *table.Table {
	tabletest.NewNamespace(b)
	tables, err := table.New(config, nft.IPv4)
	if err == nil {
		err = tables[0].Setup()
	}
	must.NoError(b, err)
	of := tables[0]
	b.Cleanup(func() { of.Close() })
	of.SetNode(tabletest.Node())
	tabletest.PassNumbered(of, services, endpoints)
	return of
}

// measure reports the time, allocations, rows and netlink bytes of each call
// of f.
func measure(b *testing.B, of *table.Table, f func(i int)) {
	before, used := of.Stats(), nstest.CPUTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		f(i)
	}
	b.StopTimer()
	after, used := of.Stats(), nstest.CPUTime(b)-used
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(after.BytesWritten-before.BytesWritten)/float64(b.N), "sent-B/op")
	b.ReportMetric(float64(after.RowsWritten-before.RowsWritten)/float64(b.N), "rows/op")
	b.ReportMetric(float64((after.CommitTime-before.CommitTime).Microseconds())/float64(b.N), "kernel-µs/op")
}

// BenchmarkRewriteSizes writes all Services again while they have so many
// different numbers of endpoints.
func BenchmarkRewriteSizes(b *testing.B) {
	for _, sizes := range []int{1, 17, 51} {
		b.Run(fmt.Sprint(sizes), func(b *testing.B) {
			of := loaded(b, sampleConfig(), benchServices, tabletest.ManyEndpoints)
			for i := range sizes { // Services with more endpoints than the others
				addEndpoints(of, i, i)
			}
			tabletest.Sync(b, of)
			measure(b, of, func(int) {
				table.Distrust(of)
				tabletest.Sync(b, of)
			})
		})
	}
}

// scale measures an endpoint that is added to a Service and removed: two syncs.
func scale(b *testing.B, of *table.Table, service int) {
	name, more := tabletest.NumberedService(service).Name, tabletest.NumberedEndpoint(benchServices, 0)
	measure(b, of, func(int) {
		tabletest.SetEndpoint(of, name, more)
		tabletest.Sync(b, of)
		tabletest.DeleteEndpoint(of, name, more.EndpointKey)
		tabletest.Sync(b, of)
	})
}

// BenchmarkChanges measures single changes, which must not depend on the number
// of Services: an endpoint is added and removed, an endpoint is added to a
// Service that then has a number of endpoints that no Service had, a Service is
// added and removed, and a Service loses its endpoints and gets them again.
func BenchmarkChanges(b *testing.B) {
	for _, services := range []int{200, benchServices, 5 * benchServices} {
		b.Run(fmt.Sprint("services=", services), func(b *testing.B) {
			config := sampleConfig()
			config.Rules.Budgets.Namespace = math.MaxInt32 // all Services are in one
			of := loaded(b, config, services, tabletest.ManyEndpoints)
			tabletest.Sync(b, of)
			addEndpoints(of, 7, 2)
			tabletest.Sync(b, of) // the number of endpoints that "endpoint" needs
			b.Run("endpoint", func(b *testing.B) { scale(b, of, 77) })
			n := 1
			b.Run("size", func(b *testing.B) {
				measure(b, of, func(int) {
					n++
					name := tabletest.NumberedService(7).Name
					tabletest.SetEndpoint(of, name, tabletest.NumberedEndpoint(700_000, n))
					tabletest.Sync(b, of)
				})
			})
			b.Run("service", func(b *testing.B) { addService(b, of) })
			b.Run("no-endpoints", func(b *testing.B) { loseEndpoints(b, of, 77) })
		})
	}
}

// addEndpoints adds endpoints to a Service of the benchmarks until it has n
// more than at first.
func addEndpoints(of *table.Table, service, n int) {
	for e := range n {
		tabletest.SetEndpoint(of, tabletest.NumberedService(service).Name, tabletest.NumberedEndpoint(700_000, e))
	}
}

// addService adds a Service with its endpoints and deletes them: two syncs.
func addService(b *testing.B, of *table.Table) {
	svc := tabletest.NumberedService(6 * benchServices)
	measure(b, of, func(int) {
		of.SetService(svc)
		for e := range tabletest.ManyEndpoints {
			tabletest.SetEndpoint(of, svc.Name, tabletest.NumberedEndpoint(600_000, e))
		}
		tabletest.Sync(b, of)
		of.DeleteService(svc.Name)
		for e := range tabletest.ManyEndpoints {
			tabletest.DeleteEndpoint(of, svc.Name, tabletest.NumberedEndpoint(600_000, e).EndpointKey)
		}
		tabletest.Sync(b, of)
	})
}

// loseEndpoints removes all endpoints of a Service and adds others: two syncs.
func loseEndpoints(b *testing.B, of *table.Table, service int) {
	name := tabletest.NumberedService(service).Name
	var endpoints []*cluster.Endpoint
	for e := range tabletest.ManyEndpoints {
		endpoints = append(endpoints, tabletest.NumberedEndpoint(650_000, e))
	}
	for e := range tabletest.ManyEndpoints {
		key := tabletest.NumberedEndpoint(0, service*tabletest.ManyEndpoints+e).EndpointKey
		tabletest.DeleteEndpoint(of, name, key)
	}
	of.SetEndpoints(name, "slice", endpoints)
	tabletest.Sync(b, of)
	measure(b, of, func(int) {
		of.SetEndpoints(name, "slice", nil)
		tabletest.Sync(b, of)
		of.SetEndpoints(name, "slice", endpoints)
		tabletest.Sync(b, of)
	})
}

// mixed returns a Table after a sync with the Services of the benchmarks, of
// which every fifth has session affinity.
func mixed(b *testing.B, config table.Config) *table.Table {
	of := loaded(b, config, benchServices, tabletest.ManyEndpoints)
	for i := 0; i < benchServices; i += 5 {
		svc := tabletest.NumberedService(i)
		svc.AffinityTimeout = 3 * time.Hour
		of.SetService(svc)
	}
	tabletest.Sync(b, of)
	return of
}

// BenchmarkForeignCommits measures one second with 20 commits of another
// program, each followed by a Check unless it has to wait, and one change of
// our own. It reports the CPU time of the Checks as a part of a core, their
// number, and the time of the change.
func BenchmarkForeignCommits(b *testing.B) {
	of := mixed(b, sampleConfig())
	other := nstest.Open(b)
	foreign := &nft.Table{Family: nft.IPv4, Name: "other"}
	svc, more := tabletest.NumberedService(77).Name, tabletest.NumberedEndpoint(benchServices, 0)
	var checks, changes time.Duration
	var number int
	var after time.Time // the earliest time of the next Check
	rewrites := of.Stats().Rewrites
	b.ResetTimer()
	for i := range b.N {
		for range 20 {
			next := time.Now().Add(50 * time.Millisecond)
			batch := nft.NewBatch(foreign)
			batch.AddTable("")
			batch.DeleteTable()
			must.NoError(b, other.Commit(batch))
			if !time.Now().Before(after) {
				used, err := keep.ThreadTimeOf(of.Check)
				if checks += used; err != nil {
					b.Fatal(err)
				}
				number, after = number+1, time.Now().Add(of.Rest())
			}
			time.Sleep(time.Until(next))
		}
		tabletest.SetEndpoint(of, svc, more)
		if i%2 > 0 {
			tabletest.DeleteEndpoint(of, svc, more.EndpointKey)
		}
		start := time.Now()
		tabletest.Sync(b, of)
		changes += time.Since(start)
	}
	b.StopTimer()
	b.ReportMetric(100*checks.Seconds()/b.Elapsed().Seconds(), "%core")
	b.ReportMetric(float64(number)/float64(b.N), "checks/op")
	b.ReportMetric(float64(changes.Microseconds())/float64(b.N), "change-µs/op")
	b.ReportMetric(float64(of.Stats().Rewrites-rewrites), "rewrites")
}

// BenchmarkVerify verifies an intact table.
func BenchmarkVerify(b *testing.B) {
	of := mixed(b, sampleConfig())
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		must.NoError(b, table.Verify(of))
	}
}

// BenchmarkScrub scrubs all rows and the chains of session affinity, without
// the rests.
func BenchmarkScrub(b *testing.B) {
	config := sampleConfig()
	config.Limits = new(keep.DefaultLimits())
	config.Limits.CheckShare, config.Limits.ScrubShare = 0, 0
	of := mixed(b, config)
	b.ResetTimer()
	for range b.N {
		nstest.RunNFT(b, "add table ip other")
		nstest.RunNFT(b, "delete table ip other")
		must.NoError(b, scrub(of))
	}
}
