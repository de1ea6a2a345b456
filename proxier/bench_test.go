package proxier

import (
	"fmt"
	"net/netip"
	"testing"

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
