package proxier

import (
	"fmt"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
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
	tabletest.PassNumbered(p.sink, 10_000, tabletest.ManyEndpoints)
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
				var ports []cluster.EndpointPort
				svc.Ports, ports = tabletest.Ports(size.ports)
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
