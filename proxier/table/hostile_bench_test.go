package table

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// BenchmarkHostileServices creates Services that a tenant can create to delay
// others, while an endpoint of another Service comes and goes. It reports the
// time until all is written, the mean and longest time of a sync, which is the
// delay of the other Service, and the memory that stays in use.
func BenchmarkHostileServices(b *testing.B) {
	externalIPs := func(n int) []netip.Addr {
		ips := make([]netip.Addr, n)
		for i := range ips {
			ips[i] = netip.AddrFrom4([4]byte{198, 18 + byte(i>>16), byte(i >> 8), byte(i)})
		}
		return ips
	}
	tests := []struct {
		name      string
		services  int
		ports     int
		endpoints int
		flaps     bool // it exists before, and one of its endpoints comes and goes
		change    func(*cluster.Service)
	}{
		{"none", 0, 0, 0, false, nil},
		{"300 external IPs, 20 ports, 500 endpoints", 1, 20, 500, false, func(s *cluster.Service) {
			s.ExternalIPs = externalIPs(300)
		}},
		{"20000 source ranges, 6 ports", 1, 6, 1, false, func(s *cluster.Service) {
			s.LoadBalancerIPs = tabletest.Addrs("192.0.2.1")
			for i, ip := range externalIPs(20_000) {
				s.SourceRanges = append(s.SourceRanges, netip.PrefixFrom(ip, 24+i%9).Masked())
			}
		}},
		{"20000 external IPs, 50 ports", 1, 50, 0, false, func(s *cluster.Service) {
			s.ExternalIPs = externalIPs(20_000)
		}},
		{"10000 ports, 10 endpoints", 1, 10_000, 10, false, nil},
		{"10 ports with affinity, 2000 endpoints, one flapping", 1, 10, 2_000, true, func(s *cluster.Service) {
			s.AffinityTimeout = time.Hour
		}},
		{"2 with the same 2000 external IPs, 20 ports", 2, 20, 10, false, func(s *cluster.Service) {
			s.ExternalIPs = externalIPs(2_000)
		}},
	}
	for _, test := range tests {
		b.Run(test.name, func(b *testing.B) {
			b.StopTimer()
			var written, total, longest time.Duration
			var memory, syncs int
			for range b.N {
				tabletest.NewNamespace(b)
				table := newTable(b, sampleConfig(), nft.IPv4)
				table.SetNode(tabletest.Node())
				for i := range 1000 {
					svc := tabletest.NumberedService(i)
					table.SetService(svc)
					for e := range tabletest.ManyEndpoints {
						tabletest.SetEndpoint(table, svc.Name, tabletest.NumberedEndpoint(i, e))
					}
				}
				tabletest.Sync(b, table)
				before := heapInUse()
				start := time.Now()
				var hostile []*cluster.Service
				for i := range test.services {
					name, clusterIP := fmt.Sprint("hostile-", i), fmt.Sprintf("10.97.0.%d", i+1)
					svc := heavyService(name, clusterIP, test.ports, test.change)
					table.SetService(svc)
					passHeavy(table, svc, test.endpoints)
					hostile = append(hostile, svc)
				}
				if test.flaps {
					usual := table.limits
					table.limits.time, table.limits.burst = time.Hour, time.Hour
					tabletest.Sync(b, table)
					table.limits = usual
					for _, s := range table.desired.services {
						s.pace = pace{}
					}
				}
				b.StartTimer()
				other, more := tabletest.NumberedService(7).Name, tabletest.NumberedEndpoint(benchServices, 0)
				done := false
				for i := 0; i < 50 || !done; i++ {
					if i%2 == 0 {
						tabletest.SetEndpoint(table, other, more)
					} else {
						tabletest.DeleteEndpoint(table, other, more.EndpointKey)
					}
					if test.flaps {
						passHeavy(table, hostile[0], test.endpoints-i%2)
					}
					began := time.Now()
					tabletest.Sync(b, table)
					took := time.Since(began)
					total, longest, syncs = total+took, max(longest, took), syncs+1
					if !done && (len(table.desired.dirty) == 0 || test.flaps && i == 100) {
						done, written = true, written+time.Since(start)
					}
				}
				b.StopTimer()
				memory += heapInUse() - before
				runtime.KeepAlive(table)
			}
			b.ReportMetric(written.Seconds()*1e3/float64(b.N), "written-ms")
			b.ReportMetric(total.Seconds()*1e3/float64(syncs), "sync-ms")
			b.ReportMetric(longest.Seconds()*1e3, "longest-ms")
			b.ReportMetric(float64(memory)/1e6/float64(b.N), "MB")
		})
	}
}

// heapInUse returns the bytes of the heap that are in use.
func heapInUse() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
