package nft_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// FindSet returns a description with which rows can be read.
func TestFindSet(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		sets := []*nft.Set{
			serviceMap(f), endpointMap(f), addrSet(f, "addrs"), clientSet(f, "clients"), sourceSet(f, "sources"),
		}
		table := &nft.Table{Family: f, Name: "lb", Sets: sets, Chains: []*nft.Chain{{Name: "one"}}}
		row := service(sets[0], f, 1, "one")
		commitTable(t, c, table, row)
		for _, want := range sets {
			got, err := c.FindSet(table, want.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != want.Name || got.Key.Size() != want.Key.Size() || got.Data.Size() != want.Data.Size() ||
				got.Verdicts != want.Verdicts || got.Dynamic != want.Dynamic {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		services, err := c.FindSet(table, sets[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		found, err := c.FindRows(table, []nft.Row{{Set: services, Key: nft.Tuple{}.Raw(row.Key.Bytes())}})
		if err != nil || found[0].String() != row.String() {
			t.Errorf("got row %v, %v; want %v", found, err, row)
		}
		if missing, err := c.FindSet(table, "missing"); missing != nil || err != nil {
			t.Errorf("missing set: got %+v, %v", missing, err)
		}
	})
}

// The keys of sets of other programs can have integers. Fields of an unknown
// data type are raw bytes, whose number the kernel reports.
func TestFindForeignSet(t *testing.T) {
	c := open(t)
	table := &nft.Table{Family: nft.IPv4, Name: "lb"}
	for declaration, want := range map[string]string{
		"typeof ip saddr . numgen inc mod 1; elements = { 10.0.0.1 . 7 };": "[s 10.0.0.1 . 7]",
		"type ether_addr . inet_service; elements = { 2:3:4:5:6:7 . 80 };": "[s 020304050607000000500000]",
	} {
		load(t, "table ip lb { set s { "+declaration+" }; }")
		set, err := c.FindSet(table, "s")
		if err != nil {
			t.Fatal(err)
		}
		if rows, err := c.Rows(table, set); err != nil || fmt.Sprint(rows) != want {
			t.Errorf("%s: got %v, %v; want %s", declaration, rows, err, want)
		}
	}
}

// In a set with ranges, which another program added, FindRows finds the range
// that contains a key.
func TestFindRowsInRange(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		addr, service, first := nft.Types(nft.TypeAddr(f)), nft.Tuple{}.Addr(vip(f, 1)).Port(80), vip(f, 1<<12)
		prefix := netip.PrefixFrom(first, first.BitLen()-8)
		load(t, fmt.Sprintf(`table %[1]s lb {
			set sources { type %[2]s . inet_service . %[2]s; flags interval; elements = { %[3]s . 80 . %[4]s }; }
			map chains { type %[2]s : verdict; flags interval; elements = { %[4]s : drop }; }
		}`, f, addr, vip(f, 1), prefix))
		table := &nft.Table{Family: f, Name: "lb"}
		for name, begin := range map[string]nft.Tuple{"sources": service, "chains": {}} {
			set, err := c.FindSet(table, name)
			if err != nil {
				t.Fatal(err)
			}
			found, err := c.FindRows(table, []nft.Row{
				{Set: set, Key: begin.Addr(first)}, {Set: set, Key: begin.Addr(first.Next().Next())},
				{Set: set, Key: begin.Addr(first.Prev())},
			})
			if err != nil {
				t.Fatal(err)
			}
			row := nft.Row{Set: set, Key: begin.Addr(first)} // VerdictDrop is the zero Verdict
			if !found[0].Matches(row) || !found[1].Matches(row) || found[2].Set != nil {
				t.Errorf("got %v, want %v twice, and then none", found, row)
			}
		}
	})
}
