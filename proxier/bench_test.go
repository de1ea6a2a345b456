package proxier

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

const (
	benchServices  = 10_000
	benchEndpoints = 10
)

func benchService(i int) *Service {
	return &Service{
		Name: ServiceName{"bench", fmt.Sprintf("service-%d", i)}, Families: []nft.Family{nft.IPv4},
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})},
		Ports:      []ServicePort{{Name: "http", Protocol: TCP, Port: 80}},
	}
}

func benchEndpoint(service, i int) *Endpoint {
	n := service*benchEndpoints + i
	return &Endpoint{
		EndpointKey: EndpointKey{Source: "slice", Addr: netip.AddrFrom4([4]byte{10, 128 + byte(n>>16), byte(n >> 8), byte(n)})},
		Ports:       []EndpointPort{{Name: "http", Protocol: TCP, Port: 8080}},
		Node:        "other", Ready: true, Serving: true,
	}
}

// loaded returns a backend that was told of all services of the benchmarks.
func loaded(b *testing.B) *Backend {
	newNamespace(b)
	backend := newBackend(b, sampleConfig(), nft.IPv4)
	backend.SetNode(sampleNode())
	for i := range benchServices {
		svc := benchService(i)
		backend.SetService(svc)
		for e := range benchEndpoints {
			backend.SetEndpoint(svc.Name, benchEndpoint(i, e))
		}
	}
	return backend
}

// measure reports time, allocations, rows and bytes sent of each call of f.
func measure(b *testing.B, backend *Backend, f func(i int)) {
	before := backend.Stats()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		f(i)
	}
	b.StopTimer()
	after := backend.Stats()
	b.ReportMetric(float64(after.BytesWritten-before.BytesWritten)/float64(b.N), "sent-B/op")
	b.ReportMetric(float64(after.RowsWritten-before.RowsWritten)/float64(b.N), "rows/op")
	b.ReportMetric(float64((after.CommitTime-before.CommitTime).Microseconds())/float64(b.N), "kernel-µs/op")
}

// BenchmarkFullWrite writes all services from nothing.
func BenchmarkFullWrite(b *testing.B) {
	backend := loaded(b)
	measure(b, backend, func(int) {
		b.StopTimer()
		if err := deleteTable(backend); err != nil {
			b.Fatal(err)
		}
		backend.doubt("benchmark")
		b.StartTimer()
		mustSync(b, backend)
	})
}

// BenchmarkRewrite writes all services again, in one transaction, over what is there.
func BenchmarkRewrite(b *testing.B) {
	backend := loaded(b)
	mustSync(b, backend)
	measure(b, backend, func(int) {
		backend.doubt("benchmark")
		mustSync(b, backend)
	})
}

// BenchmarkReplaceEndpoint puts another endpoint in the place of one.
func BenchmarkReplaceEndpoint(b *testing.B) {
	backend := loaded(b)
	mustSync(b, backend)
	name, gone := benchService(77).Name, benchEndpoint(77, 3)
	measure(b, backend, func(i int) {
		come := benchEndpoint(77, 3)
		come.Addr = netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		backend.DeleteEndpoint(name, gone.EndpointKey)
		backend.SetEndpoint(name, come)
		mustSync(b, backend)
		gone = come
	})
}

// BenchmarkScale adds an endpoint to a service and takes it away again: two syncs.
func BenchmarkScale(b *testing.B) {
	backend := loaded(b)
	mustSync(b, backend)
	name, more := benchService(77).Name, benchEndpoint(benchServices, 0)
	measure(b, backend, func(int) {
		backend.SetEndpoint(name, more)
		mustSync(b, backend)
		backend.DeleteEndpoint(name, more.EndpointKey)
		mustSync(b, backend)
	})
}

// BenchmarkAddService adds a service with its endpoints and takes it away again: two syncs.
func BenchmarkAddService(b *testing.B) {
	backend := loaded(b)
	mustSync(b, backend)
	svc := benchService(benchServices)
	measure(b, backend, func(int) {
		backend.SetService(svc)
		for e := range benchEndpoints {
			backend.SetEndpoint(svc.Name, benchEndpoint(benchServices, e))
		}
		mustSync(b, backend)
		backend.DeleteService(svc.Name)
		for e := range benchEndpoints {
			backend.DeleteEndpoint(svc.Name, benchEndpoint(benchServices, e).EndpointKey)
		}
		mustSync(b, backend)
	})
}

// BenchmarkRender renders the rows of one service port.
func BenchmarkRender(b *testing.B) {
	backend := loaded(b)
	backend.SetNode(sampleNode())
	plan := backend.planOf(backend.services[benchService(77).Name].ports[0])
	var rows []nft.Row
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		rows = backend.render.rows(rows[:0], plan)
	}
}

// BenchmarkDiff finds the difference between the rows of a service port before and after one of its endpoints is replaced.
func BenchmarkDiff(b *testing.B) {
	backend := loaded(b)
	backend.SetNode(sampleNode())
	s := backend.services[benchService(77).Name]
	before := backend.render.rows(nil, backend.planOf(s.ports[0]))
	backend.DeleteEndpoint(s.name, benchEndpoint(77, 3).EndpointKey)
	backend.SetEndpoint(s.name, benchEndpoint(benchServices, 0))
	after := backend.render.rows(nil, backend.planOf(s.ports[0]))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		diffRows(before, after)
	}
}

func deleteTable(b *Backend) error {
	_, exists, err := b.kernel.FindTable(&nft.Table{Family: b.layout.family, Name: TableName})
	if err != nil || !exists {
		return err
	}
	b.batch.Reset()
	b.batch.DeleteTable()
	return b.commit()
}

// mixed returns a synced backend with the Services of the benchmarks, of which
// every fifth has session affinity.
func mixed(b *testing.B) *Backend {
	backend := loaded(b)
	for i := 0; i < benchServices; i += 5 {
		svc := benchService(i)
		svc.AffinityTimeout = 3 * time.Hour
		backend.SetService(svc)
	}
	mustSync(b, backend)
	return backend
}

// BenchmarkForeignCommits is one second with 20 commits of another program, each
// followed by a check as SyncLoop makes it, and one change of our own. It reports
// the CPU time of the checks as a part of a core, and the time of the change.
func BenchmarkForeignCommits(b *testing.B) {
	backend := mixed(b)
	other, err := nft.Open()
	if err != nil {
		b.Fatal(err)
	}
	defer other.Close()
	foreign := &nft.Table{Family: nft.IPv4, Name: "other"}
	name, gone := benchService(77).Name, benchEndpoint(77, 3)
	var checks, changes time.Duration
	rewrites := backend.stats.Rewrites
	b.ResetTimer()
	for i := range b.N {
		for range 20 {
			next := time.Now().Add(checkPeriod)
			batch := nft.NewBatch(foreign)
			batch.AddTable("")
			batch.DeleteTable()
			if err := other.Commit(batch); err != nil {
				b.Fatal(err)
			}
			start := threadTime(b)
			check(b, backend)
			checks += threadTime(b) - start
			time.Sleep(time.Until(next))
		}
		come := benchEndpoint(77, 3)
		come.Addr = netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		backend.DeleteEndpoint(name, gone.EndpointKey)
		backend.SetEndpoint(name, come)
		start := time.Now()
		mustSync(b, backend)
		changes += time.Since(start)
		gone = come
	}
	b.StopTimer()
	b.ReportMetric(100*checks.Seconds()/b.Elapsed().Seconds(), "%core")
	b.ReportMetric(float64(changes.Microseconds())/float64(b.N), "change-µs/op")
	b.ReportMetric(float64(backend.stats.Rewrites-rewrites), "rewrites")
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
	backend := mixed(b)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := backend.verify(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScrub reads all rows and the chains of session affinity, without the
// rests in between.
func BenchmarkScrub(b *testing.B) {
	backend := mixed(b)
	b.ResetTimer()
	for i := range b.N {
		backend.generation.foreign, backend.verified = i+1, i+1
		scrubAll(b, backend)
	}
}

// BenchmarkRepair measures the time from the deletion of the table by another
// program until packets pass the table again, under SyncLoop.
func BenchmarkRepair(b *testing.B) {
	newNamespace(b)
	p, err := newProxier(*sampleConfig(), nft.IPv4)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	p.sink.SetNode(sampleNode())
	for i := range benchServices {
		svc := benchService(i)
		p.sink.SetService(svc)
		var endpoints []*Endpoint
		for e := range benchEndpoints {
			endpoints = append(endpoints, benchEndpoint(i, e))
		}
		p.sink.SetEndpoints(svc.Name, "slice", endpoints)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.SyncLoop(ctx)
	}()
	defer func() { stop(); <-done }()
	p.Sync()
	<-p.Synced()
	other, err := nft.Open()
	if err != nil {
		b.Fatal(err)
	}
	defer other.Close()
	table := &nft.Table{Family: nft.IPv4, Name: TableName}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		time.Sleep(calmTime + checkPeriod) // so that the repair does not wait
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
