package proxier

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// BenchmarkRepair measures the time from the deletion of the table by another
// program to its restoration by SyncLoop.
func BenchmarkRepair(b *testing.B) {
	tabletest.NewNamespace(b)
	p := newTestProxier(b, sampleConfig(), nft.IPv4)
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	p.sink.SetNode(tabletest.Node())
	for i := range 10_000 {
		svc := tabletest.NumberedService(i)
		p.sink.SetService(svc)
		var endpoints []*cluster.Endpoint
		for e := range tabletest.ManyEndpoints {
			endpoints = append(endpoints, tabletest.NumberedEndpoint(i, e))
		}
		p.sink.SetEndpoints(svc.Name, "slice", endpoints)
	}
	startLoop(b, p)
	p.Sync()
	<-p.Synced()
	other, err := nft.Open()
	if err != nil {
		b.Fatal(err)
	}
	defer other.Close()
	table := &nft.Table{Family: nft.IPv4, Name: ruleset.TableName}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		time.Sleep(6 * time.Second) // so that the repair does not wait
		batch := nft.NewBatch(table)
		batch.DeleteTable()
		b.StartTimer()
		if err := other.Commit(batch); err != nil {
			b.Fatal(err)
		}
		for {
			_, hooked, err := other.FindChain(table, "nat-prerouting")
			if err != nil {
				b.Fatal(err)
			}
			if hooked {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// BenchmarkScrape collects all metrics while connections to no Service are
// counted, or to all of them.
func BenchmarkScrape(b *testing.B) {
	for _, metrics := range []ruleset.ServiceMetrics{ruleset.ServiceMetricsOff, ruleset.ServiceMetricsAll} {
		b.Run(string(metrics), func(b *testing.B) {
			tabletest.NewNamespace(b)
			config := sampleConfig()
			config.ServiceMetrics = metrics
			p := newTestProxier(b, config, nft.IPv4)
			p.sink.SetNode(tabletest.Node())
			for i := range 10_000 {
				p.sink.SetService(tabletest.NumberedService(i))
			}
			tabletest.Sync(b, p.sink)
			registry := prometheus.NewRegistry()
			registry.MustRegister(p.Metrics())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
