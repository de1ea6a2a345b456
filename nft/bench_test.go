package nft_test

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// benchmarkTable is a table with the rows of services that have three
// endpoints each.
type benchmarkTable struct {
	*nft.Table
	rows []nft.Row
}

func newBenchmarkTable(f nft.Family, services int) benchmarkTable {
	s, endpoints := serviceMap(f), endpointMap(f)
	key := serviceKey(f)
	balance := nft.DNATMap(f, endpoints, append(key, nft.Priority())...)
	chains := []*nft.Chain{
		{Name: "one", Rules: []nft.Rule{nft.NewRule(nft.SetPriority(nft.Random(3, 0)), balance)}},
		{
			Name:  "prerouting",
			Hook:  &nft.Hook{Type: nft.ChainTypeNAT, Point: nft.Prerouting, Priority: nft.PriorityDstNAT},
			Rules: []nft.Rule{nft.NewRule(nft.VMap(s, key...))},
		},
	}
	table := &nft.Table{Family: f, Name: "bench", Sets: []*nft.Set{s, endpoints}, Chains: chains}
	t := benchmarkTable{Table: table}
	for i := range services {
		r := service(s, f, i, "one")
		r.Comment = fmt.Sprintf("default/service-%d:http", i)
		t.rows = append(t.rows, r)
		for j := range uint32(3) {
			data := nft.Tuple{}.Addr(vip(f, i)).Port(8080)
			t.rows = append(t.rows, nft.Row{Set: endpoints, Key: r.Key.Integer(j), Data: data})
		}
	}
	return t
}

func (t benchmarkTable) addRows(b *nft.Batch) {
	for i, row := range t.rows {
		b.Tag(uint32(i/4 + 1))
		b.AddRow(row)
	}
}

// commit commits the table in a new network namespace.
func (t benchmarkTable) commit(b *testing.B) (*nft.Conn, *nft.Batch) {
	c, batch := connect(b), nft.NewBatch(t.Table)
	batch.AddProgram()
	t.addRows(batch)
	commit(b, c, batch)
	return c, batch
}

func (t benchmarkTable) reportRows(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(t.rows)), "ns/row")
}

// Encode rows into a batch after Reset.
func BenchmarkEncodeRows(b *testing.B) {
	for _, f := range families {
		b.Run(f.String(), func(b *testing.B) {
			table := newBenchmarkTable(f, 1000)
			batch := nft.NewBatch(table.Table)
			table.addRows(batch)
			b.ReportAllocs()
			b.SetBytes(int64(batch.Len()))
			for b.Loop() {
				batch.Reset()
				table.addRows(batch)
			}
			table.reportRows(b)
		})
	}
}

// Replace all rows of a table by equal rows.
func BenchmarkCommitAll(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			table := newBenchmarkTable(nft.IPv4, n)
			c, batch := table.commit(b)
			b.ReportAllocs()
			for b.Loop() {
				batch.Reset()
				for _, s := range table.Sets {
					batch.FlushSet(s.Name)
				}
				table.addRows(batch)
				commit(b, c, batch)
			}
			table.reportRows(b)
		})
	}
}

// Replace one row of a map. For a verdict map the kernel checks all chains
// and rows of verdict maps.
func BenchmarkCommitOne(b *testing.B) {
	for i, set := range []string{"services", "endpoints"} { // the sets of the first two rows
		for _, n := range []int{100, 10000} {
			b.Run(fmt.Sprintf("set=%s/services=%d", set, n), func(b *testing.B) {
				table := newBenchmarkTable(nft.IPv4, n)
				c, batch := table.commit(b)
				b.ReportAllocs()
				for b.Loop() {
					batch.Reset()
					batch.DeleteRow(table.rows[i])
					batch.AddRow(table.rows[i])
					commit(b, c, batch)
				}
			})
		}
	}
}
