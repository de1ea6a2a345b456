package proxier

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
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
	other := nstest.Open(b)
	table := &nft.Table{Family: nft.IPv4, Name: ruleset.TableName}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		time.Sleep(6 * time.Second) // so that the repair does not wait
		batch := nft.NewBatch(table)
		batch.DeleteTable()
		b.StartTimer()
		must.NoError(b, other.Commit(batch))
		for {
			_, hooked, err := other.FindChain(table, "nat-prerouting")
			must.NoError(b, err)
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
				must.NoError(b, err)
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
				p.families[0].handOver(partCost)
				p.families[0].table.Sync() // it fails without a kernel, after the endpoints were merged
				p.families[0].table.Service(svc.Name)
			}
		})
	}
}

// BenchmarkChange measures the CPU time of a change from the event of the API
// to its followers: an endpoint of one of 200 Services is replaced.
func BenchmarkChange(b *testing.B) {
	tabletest.NewNamespace(b)
	p := newTestProxier(b, sampleConfig(), nft.IPv4)
	p.sink.SetNode(tabletest.Node())
	for i := range 200 {
		svc := tabletest.NumberedService(i)
		p.sink.SetService(svc)
		for e := range tabletest.ManyEndpoints {
			tabletest.SetEndpoint(p.families[0].table, svc.Name, tabletest.NumberedEndpoint(i, e))
		}
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	loop := newSyncLoop(p.families[0])
	loop.attempt("Sync", loop.table.Sync)
	name := tabletest.NumberedService(77).Name
	var slices [2]*discoveryv1.EndpointSlice
	for i := range slices {
		slices[i] = &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: name.Namespace, Name: "slice",
				Labels: map[string]string{discoveryv1.LabelServiceName: name.Name},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{
				{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)},
			},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprint("10.99.0.", i+1)}}},
		}
	}
	b.ReportAllocs()
	start, transactions := nstest.CPUTime(b), loop.table.Stats().Transactions
	for i := 0; b.Loop(); i++ {
		p.OnEndpointSliceUpdate(slices[i&1], slices[i&1^1])
		loop.attempt("Sync", loop.table.Sync)
	}
	if n := loop.table.Stats().Transactions - transactions; n < b.N {
		b.Errorf("%d changes caused %d transactions", b.N, n)
	}
	b.ReportMetric(float64((nstest.CPUTime(b)-start).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
}
