package nft_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// A batch has no size limit. It uses as many messages as it needs.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	gen := generation(t, c)
	rows := 100_000
	if testing.Short() {
		rows = 20_000 // emulated processors are slow
	}
	b.AddChain(&nft.Chain{Name: "other"})
	for i := range rows {
		r := service(s, nft.IPv4, i, "one")
		r.Comment = fmt.Sprintf("namespace-%d/service-%d:https", i, i)
		b.AddRow(r)
	}
	if b.RowCount() != rows || b.Len() < rows*80 {
		t.Errorf("got %d rows in %d bytes, want %d rows in at least %d", b.RowCount(), b.Len(), rows, rows*80)
	}
	commit(t, c, b)
	if got, want := generation(t, c), nft.NextGeneration(gen); got != want {
		t.Errorf("generation after one commit: got %d, want %d", got, want)
	}
	// Reading all rows takes long. If the kernel refuses only the row that is
	// missing, it has the others.
	deleteAll := func() {
		b.Reset()
		for i := range rows {
			b.DeleteRow(service(s, nft.IPv4, i, ""))
		}
	}
	deleteAll()
	b.DeleteRow(service(s, nft.IPv4, rows, ""))
	if p := refused(t, c.Commit(b)); len(p) != 1 {
		t.Fatalf("got %d problems, want 1: %v", len(p), p)
	}
	deleteAll()
	commit(t, c, b)
	if got := list(t); strings.Contains(got, "elements") {
		t.Errorf("got rows after deletion:\n%.300s", got)
	}
}

// A batch allocates nothing after Reset if it does not grow.
func TestResetKeepsMemory(t *testing.T) {
	for _, f := range families {
		b := nft.NewBatch(&nft.Table{Family: f, Name: "lb"})
		s, sources := serviceMap(f), sourceSet(f, "sources")
		var rows []nft.Row
		for i := range 5000 {
			r := service(s, f, i, "one")
			r.Comment = "default/web:http"
			source := nft.Row{Set: sources, Key: nft.Tuple{}.Addr(vip(f, i)).Port(80).Addr(vip(f, 1))}
			rows = append(rows, r, source)
		}
		fill := func() {
			b.Reset()
			for i, r := range rows {
				b.Tag(uint32(i / 3))
				b.AddRow(r)
			}
			for _, r := range rows {
				b.DeleteRow(r)
			}
		}
		fill()
		if n := testing.AllocsPerRun(3, fill); n != 0 {
			t.Errorf("%s: encoding %d rows again: got %v allocations, want 0", f, len(rows), n)
		}
	}
}
