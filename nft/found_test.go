package nft_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// foreign returns a ruleset of the nft program: table lb, and another table
// with objects of the same names.
func foreign(f nft.Family) string {
	to := endpointAddr(f)
	first, last, many := to.Addr().String(), to.Addr().Next().String(), "10.244.1.8:1-2"
	if f == nft.IPv6 {
		first, last, many = "["+first+"]", "["+last+"]", "[fd00:244::8]:1-2"
	}
	return strings.NewReplacer(
		"RANGE", many, "VIP-TO", fmt.Sprintf("%s-%s:%d", first, last, to.Port()), "FAMILY", f.String(),
		"ADDR", nft.Types(nft.TypeAddr(f)).String(), "VIP", vip(f, 10).String(), "TO", to.String(),
	).Replace(`
table FAMILY other {
	set addrs { type ADDR; }
	chain base { type nat hook output priority 5; jump away; }
	chain away { meta l4proto tcp dnat to TO; }
}
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
	chain pre { type nat hook prerouting priority dstnat; jump services; jump services; }
	chain post { type nat hook postrouting priority srcnat; }
	chain early { type filter hook output priority -110; FAMILY daddr { VIP } drop; }
	chain empty { }
	chain services {
		meta mark 0x1 accept
		FAMILY daddr VIP tcp dport 80 counter goto one
		FAMILY daddr VIP tcp dport vmap { 81 : goto one, 82 : drop }
	}
	chain one { meta l4proto tcp dnat to TO; }
	chain several {
		meta mark set 0x0a600001 meta l4proto tcp dnat FAMILY to FAMILY daddr . th dport map @endpoints
		tcp dport 80 dnat to VIP
		tcp dport 81 redirect to :8081
		tcp dport 82 masquerade to :8082-8083
		tcp dport 83 snat to TO
		tcp dport 84 dnat to RANGE
		tcp dport 85 dnat to VIP-TO
		meta mark set 0x0a600001 meta l4proto tcp dnat to FAMILY daddr map @translate : 80
		return
	}
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
	}
}

// checkHandles checks that each object has its own handle.
func checkHandles(t *testing.T, kind string, handles []uint64) {
	t.Helper()
	slices.Sort(handles)
	if slices.Contains(handles, 0) || len(slices.Compact(slices.Clone(handles))) != len(handles) {
		t.Errorf("got handles %v of %s, want different ones", handles, kind)
	}
}

func handlesOf(rules []nft.Rule) (handles []uint64) {
	for _, r := range rules {
		handles = append(handles, r.Handle)
	}
	return handles
}

func handlesOfIDs(ids []nft.RuleID) (handles []uint64) {
	for _, id := range ids {
		handles = append(handles, id.Handle)
	}
	return handles
}

func TestChains(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, foreign(f))
		chains, err := c.Chains(&nft.Table{Family: f, Name: "lb"})
		if err != nil {
			t.Fatal(err)
		}
		hooks := map[string]*nft.Hook{
			"pre":   {Type: nft.ChainTypeNAT, Point: nft.Prerouting, Priority: nft.PriorityDstNAT},
			"post":  {Type: nft.ChainTypeNAT, Point: nft.Postrouting, Priority: nft.PrioritySrcNAT},
			"early": {Type: nft.ChainTypeFilter, Point: nft.Output, Priority: -110},
		}
		otherHook := &nft.Hook{Type: nft.ChainTypeFilter, Point: nft.Output, Priority: -111}
		var names []string
		var handles []uint64
		for _, found := range chains {
			names, handles = append(names, found.Name), append(handles, found.Handle)
			want := &nft.Chain{Name: found.Name, Hook: hooks[found.Name]}
			if !found.Hook.Equal(want.Hook) || found.Hook.Equal(otherHook) {
				t.Errorf("chain %s: got hook %v, want %v", found.Name, found.Hook, want.Hook)
			}
		}
		if want := []string{"pre", "post", "early", "empty", "services", "one", "several"}; !slices.Equal(names, want) {
			t.Errorf("got chains %v, want %v", names, want)
		}
		checkHandles(t, "chains", handles)
	})
}

func TestSets(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, foreign(f))
		sets, err := c.Sets(&nft.Table{Family: f, Name: "lb"})
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
			for j, s := range wantSets {
				renamed := *s
				renamed.Name = found.Name
				want := i == j && s.Key.Size() > 0
				if got, gotType := found.Matches(s), found.Matches(&renamed); got != want || gotType != want {
					t.Errorf("set %+v matches %s: got %v, its type %v; want %v", found, s.Name, got, gotType, want)
				}
			}
		}
		checkHandles(t, "sets", handles)
	})
}

func TestRules(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, foreign(f))
		table := &nft.Table{Family: f, Name: "lb"}
		rules, err := c.Rules(table, "services")
		if err != nil || len(rules) != 3 {
			t.Errorf("got rules %v, %v; want 3", rules, err)
		}
		ids, err := c.RuleIDs(table, "services")
		if got, want := handlesOfIDs(ids), handlesOf(rules); err != nil || !slices.Equal(got, want) {
			t.Errorf("got handles %v, %v; want %v", got, err, want)
		}
		checkHandles(t, "rules", handlesOfIDs(ids))
		for _, chain := range []string{"empty", "missing"} {
			if rules, err := c.Rules(table, chain); len(rules) != 0 || err != nil {
				t.Errorf("chain %s: got rules %v, %v; want none", chain, rules, err)
			}
		}
	})
}

// DeleteRule deletes one rule, even if another one is equal.
func TestDeleteRule(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, foreign(f))
		table := &nft.Table{Family: f, Name: "lb"}
		rules, err := c.Rules(table, "pre")
		if err != nil || len(rules) != 2 || !rules[0].Equal(rules[1]) {
			t.Fatalf("got rules %v, %v; want 2 equal rules", rules, err)
		}
		b := nft.NewBatch(table)
		b.DeleteRule("pre", rules[1].Handle)
		commit(t, c, b)
		left, err := c.RuleIDs(table, "pre")
		if got, want := handlesOfIDs(left), handlesOf(rules[:1]); err != nil || !slices.Equal(got, want) {
			t.Errorf("after deletion: got handles %v, %v; want %v", got, err, want)
		}
		if p := refused(t, c.Commit(b)); len(p) != 1 || p[0].Errno != unix.ENOENT {
			t.Errorf("second deletion: got problems %v, want ENOENT", p)
		}
	})
}

// FindTable returns the handle of a table, which differs if the table was
// deleted and added again.
func TestFindTable(t *testing.T) {
	c := connect(t)
	v4, v6 := &nft.Table{Family: nft.IPv4, Name: "lb"}, &nft.Table{Family: nft.IPv6, Name: "lb"}
	handle := func(table *nft.Table) uint64 {
		t.Helper()
		found, ok, err := c.FindTable(table)
		if err != nil || ok != (found.Handle != 0) {
			t.Fatalf("%s: got %+v, %v, %v", table, found, ok, err)
		}
		return found.Handle
	}
	if got := handle(v4); got != 0 {
		t.Errorf("missing table: got handle %d, want 0", got)
	}
	load(t, "table ip lb { }\ntable ip6 lb { }\ntable ip other { }")
	first := handle(v4)
	if first == 0 || handle(v6) == first || handle(v4) != first {
		t.Errorf("got handles %d, %d, %d; want the first one to be stable and its own", first, handle(v6), handle(v4))
	}
	b := nft.NewBatch(v4)
	b.AddProgram()
	commit(t, c, b)
	if got := handle(v4); got != first {
		t.Errorf("after adding the table again: got handle %d, want %d", got, first)
	}
	b.Reset()
	b.DeleteTable()
	commit(t, c, b)
	if got := handle(v4); got != 0 {
		t.Errorf("deleted table: got handle %d, want 0", got)
	}
	b.Reset()
	b.AddProgram()
	commit(t, c, b)
	if got := handle(v4); got == 0 || got == first {
		t.Errorf("new table: got handle %d, want one other than %d", got, first)
	}
}

func TestReadMissingTable(t *testing.T) {
	c := connect(t)
	for _, table := range []*nft.Table{{Family: nft.IPv4, Name: "missing"}, {Family: nft.IPv6, Name: "lb"}} {
		load(t, "table ip lb { set s { type ipv4_addr; }\nchain c { drop; }\n}")
		chains, err1 := c.Chains(table)
		sets, err2 := c.Sets(table)
		rules, err3 := c.Rules(table, "c")
		ids, err4 := c.RuleIDs(table, "c")
		_, ok, err5 := c.FindChain(table, "c")
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			t.Error(err)
		}
		if len(chains)+len(sets)+len(rules)+len(ids) != 0 || ok {
			t.Errorf("%s: got %v, %v, %v, %v, %v; want nothing", table, chains, sets, rules, ids, ok)
		}
	}
}
