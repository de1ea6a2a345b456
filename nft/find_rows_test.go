package nft_test

import (
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// requestedRow returns the i-th row of a set of TestFindRows.
func requestedRow(f nft.Family, set *nft.Set, i int) nft.Row {
	row := nft.Row{Set: set, Key: nft.Tuple{}.Addr(vip(f, i))}
	switch set.Name {
	case "services":
		row = service(set, f, i, "one")
		row.Comment = `a "comment"`
		if i%2 != 0 {
			row.Verdict = nft.VerdictDrop
		}
	case "endpoints":
		row.Key = row.Key.Integer(uint32(i))
		row.Data = nft.Tuple{}.Addr(vip(f, i+1)).Port(8080)
	case "ports":
		row.Key = nft.Tuple{}.Port(uint16(i + 1))
	case "sources":
		row.Key = nft.Tuple{}.Addr(vip(f, 1)).Port(80).Addr(vip(f, i))
	}
	return row
}

// FindRows returns the rows of the kernel, and none for keys that the set
// does not have.
func TestFindRows(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		sets := []*nft.Set{
			serviceMap(f),
			{
				Name: "endpoints", Key: nft.Types(nft.TypeAddr(f), nft.TypeClassID),
				Data: nft.Types(nft.TypeAddr(f), nft.TypeInetService),
			},
			addrSet(f, "addrs"),
			{Name: "ports", Key: nft.Types(nft.TypeInetService)},
			sourceSet(f, "sources"),
		}
		const n = 200 // in several requests
		var rows []nft.Row
		for _, set := range sets {
			for i := range n {
				rows = append(rows, requestedRow(f, set, i))
			}
		}
		table := &nft.Table{Family: f, Name: "lb", Sets: sets, Chains: []*nft.Chain{{Name: "one"}}}
		nstest.Commit(t, c, table, rows...)
		counts, err := c.Sets(table)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range counts {
			if found.Count != n && found.Count != -1 {
				t.Errorf("set %s: got %d rows, want %d", found.Name, found.Count, n)
			}
		}
		for i := range sets {
			want := rows[i*n : (i+1)*n]
			checkFindRows(t, c, table, want, nil)
			b := nft.NewBatch(table)
			deleted := []int{0, 1, 5, 100, n - 1}
			for _, j := range deleted {
				b.DeleteRow(want[j])
			}
			commit(t, c, b)
			checkFindRows(t, c, table, want, deleted)
		}
		verdict, comment := rows[2], rows[2]
		verdict.Verdict, comment.Comment = nft.VerdictDrop, "other"
		found, err := c.FindRows(table, []nft.Row{verdict, comment})
		if err != nil || found[0].Set == nil || found[0].Matches(verdict) || found[1].Matches(comment) {
			t.Errorf("rows with another verdict and comment: got %+v, %v; want rows that do not match", found, err)
		}
		missing := &nft.Table{Family: f, Name: "missing"}
		if found, err := c.FindRows(missing, rows[:3]); err != nil || found[0].Set != nil {
			t.Errorf("rows of a missing table: got %+v, %v; want none", found, err)
		}
	})
}

// checkFindRows checks that FindRows returns the rows, except those with the
// deleted indexes.
func checkFindRows(t *testing.T, c *nft.Conn, table *nft.Table, rows []nft.Row, deleted []int) {
	t.Helper()
	found, err := c.FindRows(table, rows)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		want := !slices.Contains(deleted, i)
		if (found[i].Set != nil) != want || found[i].Matches(row) != want {
			t.Fatalf("row %d of %s: got %+v, want it found: %v", i, row.Set.Name, found[i], want)
		}
	}
}
