package nft_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// A counter that is added again keeps its values. It cannot be deleted while a
// rule refers to it.
func TestCounters(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, "table "+f.String()+" lb { counter drops { packets 5 bytes 600; }; limit l { rate 1/second; }; }")
		table := countingTable(f)
		commitTable(t, c, table)
		found, err := c.Counters(table)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 2 { // the limit is none
			t.Errorf("got counters %+v, want 2", found)
		}
		one, ok, err := c.FindCounter(table, "drops")
		if err != nil || !ok || one.Packets != 5 || one.Bytes != 600 || one.Handle == 0 || !slices.Contains(found, one) {
			t.Errorf("got %+v, %v, %v; want 5 packets, 600 bytes, as in %+v", one, ok, err, found)
		}
		rules, err := c.Rules(table, "one")
		if err != nil || len(rules) != 1 || !rules[0].Equal(table.Chains[0].Rules[0].Content(f)) ||
			!slices.Equal(rules[0].Counters, []string{"drops"}) {
			t.Errorf("got rules %+v, %v", rules, err)
		}

		b := nft.NewBatch(table)
		b.DeleteCounter("drops")
		if err := c.Commit(b); !errors.Is(err, unix.EBUSY) {
			t.Errorf("delete a counter in use: got %v, want EBUSY", err)
		}
		b.Reset()
		b.DeleteChain("one")
		commit(t, c, b)
		b.Reset()
		b.DeleteCounter("drops")
		commit(t, c, b)
		if _, ok, err := c.FindCounter(table, "drops"); ok || err != nil {
			t.Errorf("deleted counter: got %v, %v", ok, err)
		}
		checkProblem(t, c, b, "delete counter drops: no such file or directory")
	})
}

// Counters of a table that does not exist are none.
func TestCountersWithoutTable(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		if found, err := c.Counters(countingTable(f)); len(found) > 0 || err != nil {
			t.Errorf("got %v, %v; want none", found, err)
		}
	})
}
