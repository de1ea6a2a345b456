package nft_test

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// foreign is a ruleset of the nft program.
func foreign(f nft.Family) string {
	return strings.NewReplacer("FAMILY", f.String(), "ADDR", nft.Types(nft.TypeAddr(f)).String()).Replace(`
table FAMILY lb {
	set addrs { type ADDR; }
	set clients { typeof FAMILY saddr . meta priority; size 100; flags dynamic,timeout; }
	set sources { type ADDR . inet_service . ADDR; }
	set ranges { type ADDR . inet_service . ADDR; flags interval; }
	set prefixes { type ADDR; flags interval; }
	map services { type ADDR . inet_proto . inet_service : verdict; }
	map endpoints { typeof FAMILY daddr . th dport : FAMILY daddr . th dport; }
	set ports { type inet_service; }
	map translate { type ADDR : ADDR; }
	map to-port { type ADDR : inet_service; }
	set services-only { type ADDR . inet_proto . inet_service; }
	set counting { type ADDR . inet_proto . inet_service; counter; }
}`)
}

// foreignSets returns the sets of table lb in foreign.
func foreignSets(f nft.Family) []*nft.Set {
	addr := nft.TypeAddr(f)
	endpoint := nft.Types(addr, nft.TypeInetService)
	return []*nft.Set{
		addrSet(f, "addrs"),
		clientSet(f, "clients"),
		sourceSet(f, "sources"),
		{Name: "ranges"}, // no Set has the type of one with ranges
		{Name: "prefixes"},
		serviceMap(f),
		{Name: "endpoints", Key: endpoint, Data: endpoint},
		{Name: "ports", Key: nft.Types(nft.TypeInetService)},
		{Name: "translate", Key: nft.Types(addr), Data: nft.Types(addr)},
		{Name: "to-port", Key: nft.Types(addr), Data: nft.Types(nft.TypeInetService)},
		{Name: "services-only", Key: serviceType(f)},
		{Name: "counting", Key: serviceType(f), Counts: true},
	}
}

// Sets finds sets that match their descriptions, and FindSet returns them.
func TestSets(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, foreign(f))
		table := &nft.Table{Family: f, Name: "lb"}
		sets, err := c.Sets(table)
		if err != nil {
			t.Fatal(err)
		}
		wantSets := foreignSets(f)
		if len(sets) != len(wantSets) {
			t.Errorf("got sets %v, want %d", sets, len(wantSets))
		}
		var handles []uint64
		for i, found := range sets {
			handles = append(handles, found.Handle)
			if s, err := c.FindSet(table, found.Name); wantSets[i].Key.Size() > 0 && !found.Matches(s) {
				t.Errorf("got set %+v, %v; want one of the type of %+v", s, err, found)
			}
			for j, s := range wantSets {
				renamed := *s
				renamed.Name = found.Name
				want := i == j && s.Key.Size() > 0
				if got, gotType := found.Matches(s), found.Matches(&renamed); got != want || gotType != want {
					t.Errorf("set %+v matches %s: got %v, its type %v; want %v", found, s.Name, got, gotType, want)
				}
			}
		}
		if err := unique(handles); err != nil {
			t.Error(err)
		}
	})
}
