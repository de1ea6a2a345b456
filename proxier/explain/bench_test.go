package explain_test

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// benchServices is the number of Services of the benchmarks, of which
// affinityServices have session affinity. Each has tabletest.ManyEndpoints
// endpoints.
const (
	benchServices    = 10_000
	affinityServices = 2_000
)

// benchmark explains a packet, from the connection to the kernel to the answer,
// in a table with many Services.
func benchmark(b *testing.B, query string) {
	tabletest.NewNode(b)
	tables, err := table.New(table.Config{Rules: tabletest.Rules()}, nft.IPv4)
	if err != nil {
		b.Fatal(err)
	}
	tab := tables[0]
	defer tab.Close()
	if err := tab.Setup(); err != nil {
		b.Fatal(err)
	}
	tab.SetNode(tabletest.Node())
	for i := range benchServices {
		svc := tabletest.NumberedService(i)
		if i < affinityServices {
			svc.AffinityTimeout = 3 * time.Hour
		}
		tab.SetService(svc)
		for e := range tabletest.ManyEndpoints {
			tab.SetEndpoint(svc.Name, tabletest.NumberedEndpoint(i, e))
		}
	}
	tabletest.Sync(b, tab)
	for b.Loop() {
		ask(b, query)
	}
}

// BenchmarkExplain explains a packet to a ClusterIP with ten endpoints.
func BenchmarkExplain(b *testing.B) { benchmark(b, "10.96.39.15:80 tcp from 10.244.1.7") }

// BenchmarkExplainAffinity explains a packet of a new client of a Service with
// session affinity.
func BenchmarkExplainAffinity(b *testing.B) { benchmark(b, "10.96.0.77:80 tcp from 10.244.1.7") }

// BenchmarkExplainRefusal explains a packet to a wrong port of a ClusterIP.
func BenchmarkExplainRefusal(b *testing.B) { benchmark(b, "10.96.0.77:81 tcp from 10.244.1.7") }
