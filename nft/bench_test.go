package nft_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// benchmarkRows are rows of n services with three endpoints each.
type benchmarkRows struct {
	table *nft.Table
	rows  []nft.Row
}

func newBenchmarkRows(f nft.Family, n int) benchmarkRows {
	s := services(f)
	endpoints := &nft.Set{
		Name: "endpoints",
		Key:  nft.Typeof(nft.Daddr(f), nft.L4Proto(), nft.ThDport(), nft.Random(1, 0)),
		Data: nft.Typeof(nft.Daddr(f), nft.ThDport()),
	}
	key := []nft.Expr{nft.Daddr(f), nft.L4Proto(), nft.ThDport()}
	chains := []*nft.Chain{
		{Name: "one", Rules: []nft.Rule{nft.NewRule(nft.DNATMap(f, endpoints, append(key, nft.Random(3, 0))...))}},
		{
			Name:  "prerouting",
			Hook:  &nft.Hook{Type: nft.TypeNAT, Point: nft.Prerouting, Priority: nft.PriorityDstNAT},
			Rules: []nft.Rule{nft.NewRule(nft.VMap(s, key...))},
		},
	}
	b := benchmarkRows{table: &nft.Table{Family: f, Name: "bench", Sets: []*nft.Set{s, endpoints}, Chains: chains}}
	for i := range n {
		r := service(s, f, i, "one")
		r.Comment = fmt.Sprintf("default/service-%d:http", i)
		b.rows = append(b.rows, r)
		for j := range uint32(3) {
			b.rows = append(b.rows, nft.Row{Set: endpoints, Key: r.Key.Integer(j), Data: nft.Tuple{}.Addr(vip(f, i)).Port(8080)})
		}
	}
	return b
}

// program puts the empty table into the batch.
func (r benchmarkRows) program(b *nft.Batch) {
	b.Reset()
	b.AddProgram()
}

func (r benchmarkRows) add(b *nft.Batch) {
	for i, row := range r.rows {
		b.Tag(uint32(i/4 + 1))
		b.AddRow(row)
	}
}

func reportRows(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/row")
}

// Encoding rows into a batch that was used before.
func BenchmarkEncodeRows(b *testing.B) {
	for _, f := range families {
		b.Run(f.String(), func(b *testing.B) {
			rows := newBenchmarkRows(f, 1000)
			batch := nft.NewBatch(rows.table)
			rows.add(batch)
			b.ReportAllocs()
			b.SetBytes(int64(batch.Len()))
			for b.Loop() {
				batch.Reset()
				rows.add(batch)
			}
			reportRows(b, len(rows.rows))
		})
	}
}

// Encoding and committing everything, into a table that has the same rows already.
func BenchmarkCommitAll(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			newNamespace(b)
			c := open(b)
			rows := newBenchmarkRows(nft.IPv4, n)
			batch := nft.NewBatch(rows.table)
			rows.program(batch)
			rows.add(batch)
			commit(b, c, batch)
			b.ReportAllocs()
			for b.Loop() {
				batch.Reset()
				for _, s := range rows.table.Sets {
					batch.FlushSet(s.Name)
				}
				rows.add(batch)
				commit(b, c, batch)
			}
			reportRows(b, len(rows.rows))
		})
	}
}

// Replacing one row of a data map, and one of a verdict map, which makes the kernel look at all chains and rows of verdict maps.
func BenchmarkCommitOne(b *testing.B) {
	for _, set := range []string{"services", "endpoints"} {
		for _, n := range []int{100, 10000} {
			b.Run(fmt.Sprintf("set=%s/services=%d", set, n), func(b *testing.B) {
				newNamespace(b)
				c := open(b)
				rows := newBenchmarkRows(nft.IPv4, n)
				batch := nft.NewBatch(rows.table)
				rows.program(batch)
				rows.add(batch)
				commit(b, c, batch)
				row := rows.rows[0]
				if set == "endpoints" {
					row = rows.rows[1]
				}
				b.ReportAllocs()
				for b.Loop() {
					batch.Reset()
					batch.DeleteRow(row)
					batch.AddRow(row)
					commit(b, c, batch)
				}
			})
		}
	}
}

// Asking whether anybody changed the ruleset.
func BenchmarkGeneration(b *testing.B) {
	newNamespace(b)
	c := open(b)
	b.ReportAllocs()
	for b.Loop() {
		generation(b, c)
	}
}

// Writing a table as a file.
func BenchmarkFprint(b *testing.B) {
	rows := newBenchmarkRows(nft.IPv6, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := rows.table.Fprint(io.Discard, rows.rows); err != nil {
			b.Fatal(err)
		}
	}
	reportRows(b, len(rows.rows))
}
