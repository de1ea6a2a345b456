package table

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// hostile are Services that a tenant can create to delay others.
type hostile struct {
	name                       string
	services, ports, endpoints int
	change                     func(*cluster.Service)
	// flaps reports whether the Services exist before, and an endpoint comes
	// and goes.
	flaps bool
}

// BenchmarkHostileServices creates hostile Services, while an endpoint of
// another Service comes and goes. It reports the time until all is written, the
// mean and longest time of a sync, which is the delay of the other Service, and
// the memory that stays in use.
func BenchmarkHostileServices(b *testing.B) {
	externalIPs := func(n int) []netip.Addr {
		ips := make([]netip.Addr, n)
		for i := range ips {
			ips[i] = netip.AddrFrom4([4]byte{198, 18 + byte(i>>16), byte(i >> 8), byte(i)})
		}
		return ips
	}
	withExternalIPs := func(n int) func(*cluster.Service) {
		return func(s *cluster.Service) { s.ExternalIPs = externalIPs(n) }
	}
	for _, h := range []hostile{
		{name: "none"},
		{"300 external IPs, 20 ports, 500 endpoints", 1, 20, 500, withExternalIPs(300), false},
		{"20000 source ranges, 6 ports", 1, 6, 1, func(s *cluster.Service) {
			s.LoadBalancerIPs = tabletest.Addrs("192.0.2.1")
			for i, ip := range externalIPs(20_000) {
				s.SourceRanges = append(s.SourceRanges, netip.PrefixFrom(ip, 24+i%9).Masked())
			}
		}, false},
		{"20000 external IPs, 50 ports", 1, 50, 0, withExternalIPs(20_000), false},
		{"10000 ports, 10 endpoints", 1, 10_000, 10, nil, false},
		{"10 ports with affinity, 2000 endpoints, one flapping", 1, 10, 2_000, func(s *cluster.Service) {
			s.AffinityTimeout = time.Hour
		}, true},
		{"2 with the same 2000 external IPs, 20 ports", 2, 20, 10, withExternalIPs(2_000), false},
	} {
		b.Run(h.name, h.run)
	}
}

func (h *hostile) run(b *testing.B) {
	b.StopTimer()
	var written, total, longest time.Duration
	var memory, syncs int
	for range b.N {
		table := loadedWith(b, sampleConfig(), 1000, tabletest.ManyEndpoints)
		tabletest.Sync(b, table)
		before := heapInUse()
		start := time.Now()
		services := h.create(table)
		if h.flaps {
			usual := *table.config.Limits
			table.config.Limits.Time, table.config.Limits.Burst = time.Hour, time.Hour
			tabletest.Sync(b, table)
			*table.config.Limits = usual
			for _, s := range table.desired.services {
				s.group = keep.Group{}
			}
			start = time.Now()
		}
		other, more := tabletest.NumberedService(7).Name, tabletest.NumberedEndpoint(benchServices, 0)
		b.StartTimer()
		for i, done := 0, false; i < 50 || !done; i++ {
			if i%2 == 0 {
				tabletest.SetEndpoint(table, other, more)
			} else {
				tabletest.DeleteEndpoint(table, other, more.EndpointKey)
			}
			if h.flaps {
				passHeavy(table, services[0], h.endpoints-i%2)
			}
			began := time.Now()
			tabletest.Sync(b, table)
			took := time.Since(began)
			total, longest, syncs = total+took, max(longest, took), syncs+1
			if !done && (len(table.desired.dirty) == 0 || h.flaps && i == 100) {
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
}

// create passes the Services and their endpoints to a Table.
func (h *hostile) create(table *Table) (all []*cluster.Service) {
	for i := range h.services {
		name, clusterIP := fmt.Sprint("hostile-", i), fmt.Sprintf("10.97.0.%d", i+1)
		svc := heavyService(name, clusterIP, h.ports, h.change)
		table.SetService(svc)
		passHeavy(table, svc, h.endpoints)
		all = append(all, svc)
	}
	return all
}

// heapInUse returns the bytes of the heap that are in use.
func heapInUse() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
