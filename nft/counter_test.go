package nft_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// countingTable returns a table with two counters and a rule that counts.
func countingTable(f nft.Family) *nft.Table {
	drops := &nft.Counter{Name: "drops"}
	rule := nft.NewRule(nft.MatchL4Proto(udp), nft.Count(drops), nft.Drop())
	return &nft.Table{
		Family: f, Name: "lb", Counters: []*nft.Counter{drops, {Name: "unused-counter"}},
		Chains: []*nft.Chain{{Name: "one", Rules: []nft.Rule{rule}}},
	}
}

// nft lists counters and rules that count, and loads its listing and the file
// of Fprint.
func TestListCounters(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		table := countingTable(f)
		commitTable(t, c, table)
		listing := list(t)
		for _, want := range []string{"counter drops {", "counter unused-counter {", `counter name "drops" drop`} {
			if !strings.Contains(listing, want) {
				t.Errorf("got no %q in\n%s", want, listing)
			}
		}
		load(t, listing)
		checkUnchanged(t, listing)
		checkFile(t, listing, table)
	})
}

// countingSet returns a table with a set whose rows count, and a rule that
// finds them.
func countingSet(f nft.Family) (*nft.Table, *nft.Set) {
	s := &nft.Set{Name: "connections", Key: serviceType(f), Counts: true, Comment: "by service"}
	rule := nft.NewRule(nft.In(s, serviceKey(f)...))
	return &nft.Table{
		Family: f, Name: "lb", Sets: []*nft.Set{s}, Chains: []*nft.Chain{{Name: "one", Rules: []nft.Rule{rule}}},
	}, s
}

// counted returns a row that counted packets.
func counted(r nft.Row, packets uint64) nft.Row {
	r.Packets = packets
	return r
}

func countedRow(s *nft.Set, f nft.Family, i int) nft.Row {
	return nft.Row{Set: s, Key: nft.Tuple{}.Addr(vip(f, i)).Proto(tcp).Port(80),
		Comment: "service " + vip(f, i).String()}
}

// nft lists a set whose rows count, and loads its listing and the file of
// Fprint. A row that is added again keeps its numbers.
func TestCountingSet(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		table, s := countingSet(f)
		one, two := countedRow(s, f, 1), countedRow(s, f, 2)
		commitTable(t, c, table, one, two)
		listing := list(t)
		checkFile(t, listing, table, one, two)
		// Without /etc/protocols, nft lists the number of the protocol.
		second := regexp.MustCompile(`(` + vip(f, 2).String() + ` \. \w+ \. 80 counter) packets 0 bytes 0`)
		withNumbers := second.ReplaceAllString(listing, "$1 packets 5 bytes 300")
		load(t, withNumbers)
		checkUnchanged(t, withNumbers)

		b := nft.NewBatch(table)
		b.AddSet(s)
		b.AddRow(one)
		b.AddRow(two)
		commit(t, c, b)
		rows, err := c.FindRows(table, []nft.Row{one, countedRow(s, f, 3), two})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []nft.Row{one, {}, counted(two, 5)} {
			if got := rows[i]; got != want {
				t.Errorf("row %d: got %s, %d packets; want %d", i, got.Comment, got.Packets, want.Packets)
			}
		}
		sets, err := c.Sets(table)
		plain := *s
		plain.Counts = false
		if err != nil || len(sets) != 1 || !sets[0].Matches(s) || sets[0].Matches(&plain) {
			t.Errorf("got sets %+v, %v", sets, err)
		}
		if found, err := c.FindSet(table, s.Name); err != nil || !found.Counts {
			t.Errorf("got set %+v, %v", found, err)
		}
	})
}

// BenchmarkFindCountedRows reads the numbers of 10,000 rows.
func BenchmarkFindCountedRows(b *testing.B) {
	table, s := countingSet(nft.IPv4)
	c := connect(b)
	var rows []nft.Row
	for i := range 10_000 {
		rows = append(rows, countedRow(s, nft.IPv4, i))
	}
	commitTable(b, c, table, rows...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.FindRows(table, rows); err != nil {
			b.Fatal(err)
		}
	}
}
