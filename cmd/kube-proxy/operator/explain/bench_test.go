package explain_test

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/route"
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

// manyServices returns the table of many Services in the kernel.
func manyServices(b *testing.B) *table.Table {
	tabletest.NewNode(b)
	tables, err := table.New(table.Config{Rules: tabletest.Rules()}, nft.IPv4)
	must(b, err)
	tab := tables[0]
	b.Cleanup(func() { tab.Close() })
	must(b, tab.Setup())
	tab.SetNode(tabletest.Node())
	for i := range benchServices {
		svc := tabletest.NumberedService(i)
		if i < affinityServices {
			svc.AffinityTimeout = 3 * time.Hour
		}
		tab.SetService(svc)
		for e := range tabletest.ManyEndpoints {
			tabletest.SetEndpoint(tab, svc.Name, tabletest.NumberedEndpoint(i, e))
		}
	}
	tabletest.Sync(b, tab)
	return tab
}

// Packets of the benchmarks: to a ClusterIP with ten endpoints, of a new client
// of a Service with session affinity, to a wrong port of a ClusterIP, and of an
// endpoint, for which the expected table searches all Services.
const (
	toClusterIP = "10.96.39.15:80 tcp from 10.244.1.7"
	toAffinity  = "10.96.0.77:80 tcp from 10.244.1.7"
	toWrongPort = "10.96.0.77:81 tcp from 10.244.1.7"
	toItself    = "10.96.39.15:80 tcp from 10.129.134.150"
)

// inKernel explains a packet, from the connection to the kernel to the answer.
func inKernel(b *testing.B, query string) {
	manyServices(b)
	n := &node{t: b}
	for b.Loop() {
		_, err := n.ask(query, nil)
		must(b, err)
	}
}

func BenchmarkKernel(b *testing.B)          { inKernel(b, toClusterIP) }
func BenchmarkKernelAffinity(b *testing.B)  { inKernel(b, toAffinity) }
func BenchmarkKernelWrongPort(b *testing.B) { inKernel(b, toWrongPort) }

// inExpected explains a packet with the expected table.
func inExpected(b *testing.B, query string) {
	tab := manyServices(b)
	routes, err := route.Open()
	must(b, err)
	defer routes.Close()
	q, err := parseQuery(query)
	must(b, err)
	for b.Loop() {
		_, err := explain.Explain(mustExpect(b, tab), routes, q)
		must(b, err)
	}
}

func BenchmarkExpected(b *testing.B)          { inExpected(b, toClusterIP) }
func BenchmarkExpectedAffinity(b *testing.B)  { inExpected(b, toAffinity) }
func BenchmarkExpectedWrongPort(b *testing.B) { inExpected(b, toWrongPort) }
func BenchmarkExpectedHairpin(b *testing.B)   { inExpected(b, toItself) }
