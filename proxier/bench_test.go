package proxier

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
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
			config.Rules.ServiceMetrics = metrics
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

// BenchmarkDualStackChange measures the time from a change of one of 5,000
// dual-stack Services to the commits of both families. With deletions, another
// program deletes the IPv6 table ten times a second, and only the commit of
// IPv4 counts.
func BenchmarkDualStackChange(b *testing.B) {
	for _, deletions := range []bool{false, true} {
		b.Run(fmt.Sprintf("deletions=%v", deletions), func(b *testing.B) {
			tabletest.NewNamespace(b)
			committed := make([]chan struct{}, 2)
			config, opened := sampleConfig(), 0
			config.open = func() (keep.Kernel, error) {
				done := make(chan struct{}, 1000)
				committed[opened] = done
				opened++
				return openWith(func(_ *nft.Batch, commit func() error) error {
					err := commit()
					if err == nil {
						done <- struct{}{}
					}
					return err
				})()
			}
			p := newTestProxier(b, config, nft.IPv4, nft.IPv6)
			const services = 5000
			set := func(i int, port uint16) {
				svc := tabletest.NumberedService(i)
				svc.Families = []nft.Family{nft.IPv4, nft.IPv6}
				svc.ClusterIPs = append(svc.ClusterIPs, netip.MustParseAddr(fmt.Sprintf("fd00:96::%x", i+1)))
				svc.Ports[0].Port = port
				p.SetService(&translate.Service{Name: svc.Name, Service: svc})
			}
			for i := range services {
				set(i, 80)
			}
			p.OnServiceSynced()
			p.OnEndpointSlicesSynced()
			startLoop(b, p)
			<-p.Synced()
			if deletions {
				stop := deleteRepeatedly(b)
				defer stop()
			}
			var slowest time.Duration
			b.ResetTimer()
			for i := range b.N {
				b.StopTimer()
				time.Sleep(10 * time.Millisecond) // so that the change does not wait for the rest after another
				for _, c := range committed {
					for len(c) > 0 {
						<-c
					}
				}
				b.StartTimer()
				start := time.Now()
				set(i%services, uint16(1000+i%60000))
				<-committed[0]
				if !deletions {
					<-committed[1]
				}
				slowest = max(slowest, time.Since(start))
			}
			b.ReportMetric(float64(slowest.Microseconds())/1000, "max-ms")
		})
	}
}

// deleteRepeatedly deletes the IPv6 table ten times a second until stop is
// called.
func deleteRepeatedly(b *testing.B) (stop func()) {
	other, err := nft.Open()
	if err != nil {
		b.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer other.Close()
		batch := nft.NewBatch(&nft.Table{Family: nft.IPv6, Name: ruleset.TableName})
		batch.DeleteTable()
		for {
			other.Commit(batch) // it fails while the table does not exist
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() { close(done); <-ended }
}

// BenchmarkManySlices measures the sync of a Service with many EndpointSlices
// of one endpoint each.
func BenchmarkManySlices(b *testing.B) {
	for _, size := range []struct{ slices, ports int }{{40_000, 1}, {10, 10_000}} {
		b.Run(fmt.Sprintf("slices=%d/ports=%d", size.slices, size.ports), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				p, err := assemble(sampleConfig(), nft.IPv4)
				if err != nil {
					b.Fatal(err)
				}
				svc := tabletest.NumberedService(0)
				svc.Ports = nil
				var ports []cluster.EndpointPort
				for i := range size.ports {
					name, port := fmt.Sprintf("p%05d", i), uint16(i+1)
					svc.Ports = append(svc.Ports, cluster.ServicePort{Name: name, Protocol: cluster.TCP, Port: port})
					ports = append(ports, cluster.EndpointPort{Name: name, Protocol: cluster.TCP, Port: port})
				}
				p.SetService(&translate.Service{Name: svc.Name, Service: svc})
				for i := range size.slices {
					e := tabletest.NumberedEndpoint(0, i)
					e.Source, e.Ports = fmt.Sprint("slice-", i), ports
					p.SetEndpointSlice(&translate.EndpointSlice{
						Name:    translate.SliceName{Namespace: svc.Name.Namespace, Name: e.Source},
						Service: svc.Name, Family: nft.IPv4, Endpoints: []*cluster.Endpoint{e},
					})
				}
				b.StartTimer()
				p.families[0].handOver()
				p.families[0].table.Sync() // it fails without a kernel, after the endpoints were merged
				p.families[0].table.Service(svc.Name)
			}
		})
	}
}
