package nft_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// FindRows returns the rows that were added, none for keys that the set does not
// have, and the data that the kernel has.
func TestFindRows(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		c := open(t)
		addr := nft.TypeAddr(f)
		endpoint := nft.Typeof(nft.Daddr(f), nft.ThDport())
		sets := []*nft.Set{
			{Name: "verdicts", Key: nft.Types(addr, nft.TypeInetProto, nft.TypeInetService), Verdicts: true},
			{Name: "endpoints", Key: nft.Typeof(nft.Daddr(f), nft.Random(1, 0)), Data: endpoint},
			{Name: "addrs", Key: nft.Types(addr)},
			{Name: "ports", Key: nft.Types(nft.TypeInetService)},
			{Name: "sources", Key: nft.Types(addr, nft.TypeInetService, addr), Interval: true},
		}
		row := func(set *nft.Set, i int) nft.Row {
			switch set.Name {
			case "verdicts":
				v := nft.VerdictDrop
				if i%2 == 0 {
					v = nft.VerdictGoto("one")
				}
				return nft.Row{Set: set, Key: nft.Tuple{}.Addr(vip(f, i)).Proto(tcp).Port(80), Verdict: v, Comment: `a "comment"`}
			case "endpoints":
				return nft.Row{Set: set, Key: nft.Tuple{}.Addr(vip(f, i)).Integer(uint32(i)), Data: nft.Tuple{}.Addr(vip(f, i+1)).Port(8080)}
			case "addrs":
				return nft.Row{Set: set, Key: nft.Tuple{}.Addr(vip(f, i))}
			case "ports":
				return nft.Row{Set: set, Key: nft.Tuple{}.Port(uint16(i + 1))}
			}
			from := netip.PrefixFrom(vip(f, i*256), f.AddrLen()*8-8*(i%2))
			return nft.Row{Set: set, Key: nft.Tuple{}.Addr(vip(f, 1)).Port(80)}.Prefix(from)
		}
		const n = 200 // several requests
		var rows []nft.Row
		for _, set := range sets {
			for i := range n {
				rows = append(rows, row(set, i))
			}
		}
		table := &nft.Table{Family: f, Name: "lb", Sets: sets, Chains: []*nft.Chain{{Name: "one"}}}
		commitTable(t, c, table, rows...)
		counts, err := c.Sets(table)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range counts {
			if found.Count != n && found.Count != -1 {
				t.Errorf("set %s has %d rows, want %d", found.Name, found.Count, n)
			}
		}
		for i, set := range sets {
			want := slices.Clone(rows[i*n : (i+1)*n])
			found, err := c.FindRows(table, want)
			if err != nil {
				t.Fatal(err)
			}
			for j := range want {
				if !found[j].SameAs(want[j]) {
					t.Fatalf("found %+v, want %+v", found[j], want[j])
				}
			}
			b := nft.NewBatch(table)
			gone := []int{0, 1, 5, 100, n - 1}
			for _, j := range gone {
				b.DeleteRow(want[j])
			}
			commit(t, c, b)
			if found, err = c.FindRows(table, want); err != nil {
				t.Fatal(err)
			}
			for j := range want {
				if missing := slices.Contains(gone, j); (found[j].Set == nil) != missing || found[j].SameAs(want[j]) == missing {
					t.Errorf("row %d of %s: found %+v, want it missing: %v", j, set.Name, found[j], missing)
				}
			}
		}
		other := rows[2]
		other.Verdict = nft.VerdictDrop
		if found, err := c.FindRows(table, []nft.Row{other}); err != nil || found[0].Set == nil || found[0].SameAs(other) {
			t.Errorf("row with another verdict: %+v, %v", found, err)
		}
		if found, err := c.FindRows(&nft.Table{Family: f, Name: "missing"}, rows[:3]); err != nil || found[0].Set != nil {
			t.Errorf("rows of a table that does not exist: %+v, %v", found, err)
		}
	})
}
