package proxier

import (
	"context"
	"fmt"
	"runtime"
	runtimemetrics "runtime/metrics"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// BenchmarkHostileEndpoints deletes an EndpointSlice of terminating endpoints
// with many ports, while another Service changes all the time. It reports the
// longest time of a change and of a commit, and the peak of additional memory.
func BenchmarkHostileEndpoints(b *testing.B) {
	for _, size := range []struct{ endpoints, ports int }{{1000, 2000}, {1000, 16}} {
		b.Run(fmt.Sprintf("endpoints=%d/ports=%d", size.endpoints, size.ports), func(b *testing.B) {
			tabletest.NewNamespace(b)
			config := sampleConfig()
			config.Rules.ResetStaleConnections = true
			p := newTestProxier(b, config, nft.IPv4)
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				p.followers.Run(ctx)
			}()
			defer func() { cancel(); <-ended }()
			svc := tabletest.NumberedService(0)
			commit := &table.Commit{Family: nft.IPv4}
			ports, targets := tabletest.Ports(size.ports)
			for _, port := range ports {
				commit.Changes = append(commit.Changes, table.PortChange{After: &ruleset.Plan{
					Service: svc, Port: port, Frontends: ruleset.FrontendsOf(nft.IPv4, svc, port),
				}})
			}
			p.followers.Observe(nft.IPv4, commit)
			name := translate.SliceName{Namespace: svc.Name.Namespace, Name: "slice"}
			slice := &translate.EndpointSlice{Name: name, Service: svc.Name, Family: nft.IPv4}
			for i := range size.endpoints {
				e := tabletest.NumberedEndpoint(0, i)
				e.Ports, e.Ready, e.Serving, e.Terminating = targets, false, false, true
				slice.Endpoints = append(slice.Endpoints, e)
			}
			var peak int
			var change, committed time.Duration
			other := tabletest.NumberedService(1)
			for range b.N {
				p.SetEndpointSlice(slice)
				runtime.GC()
				before := heapObjects()
				p.DeleteEndpointSlice(name)
				for start := time.Now(); time.Since(start) < 5*time.Second; time.Sleep(100 * time.Microsecond) {
					began := time.Now()
					p.SetService(&translate.Service{Name: other.Name, Service: other})
					change = max(change, time.Since(began))
					began = time.Now()
					p.followers.Observe(nft.IPv4, &table.Commit{Family: nft.IPv4})
					committed = max(committed, time.Since(began))
					peak = max(peak, heapObjects()-before)
				}
			}
			b.ReportMetric(change.Seconds()*1e3, "change-ms")
			b.ReportMetric(committed.Seconds()*1e3, "commit-ms")
			b.ReportMetric(float64(peak)/1e6, "peak-MB")
		})
	}
}

// heapObjects returns the bytes of all objects, also of those that the garbage
// collector has not freed yet.
func heapObjects() int {
	sample := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtimemetrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
