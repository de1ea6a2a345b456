package nft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// foreign is a table that the nft program made, and one that must not be mistaken for it.
func foreign(f nft.Family) string {
	vip, to, many := "10.96.0.10", "10.244.1.8:8080", "10.244.1.8:1-2"
	if f == nft.IPv6 {
		vip, to, many = "fd00:96::10", "[fd00:244::8]:8080", "[fd00:244::8]:1-2"
	}
	return strings.NewReplacer("RANGE", many, "VIP-TO", addresses(to), "FAMILY", f.String(), "ADDR", nft.TypeAddr(f).String(), "VIP", vip, "TO", to).Replace(`
table FAMILY other {
	set addrs { type ADDR; }
	chain base { type nat hook output priority 5; jump away; }
	chain away { meta l4proto tcp dnat to TO; }
}
table FAMILY lb {
	set addrs { type ADDR; }
	set clients { typeof FAMILY saddr . numgen inc mod 1; size 100; flags dynamic,timeout; }
	set sources { type ADDR . inet_service . ADDR; flags interval; }
	set prefixes { type ADDR; flags interval; }
	map verdicts { type ADDR . inet_proto . inet_service : verdict; }
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

// addresses returns a range of two addresses with the port of to.
func addresses(to string) string {
	addr := netip.MustParseAddrPort(to)
	first, last := addr.Addr().String(), addr.Addr().Next().String()
	if addr.Addr().Is6() {
		first, last = "["+first+"]", "["+last+"]"
	}
	return fmt.Sprintf("%s-%s:%d", first, last, addr.Port())
}

func names(found []nft.Found) []string {
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
	}
	return names
}

// checkHandles fails if two of the objects have one handle, or one has none.
func checkHandles(t *testing.T, kind string, found []nft.Found) {
	t.Helper()
	seen := make(map[uint64]bool)
	for _, f := range found {
		if f.Handle == 0 || seen[f.Handle] {
			t.Errorf("handle %d of one of the %s is none, or not its own", f.Handle, kind)
		}
		seen[f.Handle] = true
	}
}

// What nft made is read as it is.
func TestInspect(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		load(t, foreign(f))
		c := open(t)
		table := &nft.Table{Family: f, Name: "lb"}

		chains, err := c.Chains(table)
		if err != nil {
			t.Fatal(err)
		}
		hooks := map[string]*nft.Hook{
			"pre":   {Type: nft.TypeNAT, Point: nft.Prerouting, Priority: nft.PriorityDstNAT},
			"post":  {Type: nft.TypeNAT, Point: nft.Postrouting, Priority: nft.PrioritySrcNAT},
			"early": {Type: nft.TypeFilter, Point: nft.Output, Priority: -110},
		}
		if got, want := names(chains), []string{"pre", "post", "early", "empty", "services", "one", "several"}; !slices.Equal(got, want) {
			t.Errorf("chains %v, want %v", got, want)
		}
		for _, found := range chains {
			want := &nft.Chain{Name: found.Name, Hook: hooks[found.Name]}
			other := &nft.Chain{Name: found.Name, Hook: &nft.Hook{Type: nft.TypeFilter, Point: nft.Output, Priority: -111}}
			if !found.SameHook(want) || found.SameHook(other) {
				t.Errorf("chain %s has hook %v", found.Name, found.Hook)
			}
		}
		checkHandles(t, "chains", chains)

		sets, err := c.Sets(table)
		if err != nil {
			t.Fatal(err)
		}
		wantSets := inspectedSets(f)
		if len(sets) != len(wantSets) {
			t.Errorf("sets %v, want %d", names(sets), len(wantSets))
		}
		for i, found := range sets {
			for j, s := range wantSets {
				if found.Same(s) != (i == j) {
					t.Errorf("set %s (%+v) is the same as %s: %v", found.Name, found, s.Name, found.Same(s))
				}
				renamed := *s
				renamed.Name = found.Name
				if found.Same(&renamed) != (i == j) {
					t.Errorf("set %s (%+v) is of the type of %s: %v", found.Name, found, s.Name, found.Same(&renamed))
				}
			}
		}
		checkHandles(t, "sets", sets)

		rules, err := c.Rules(table, "services")
		if err != nil || len(rules) != 3 {
			t.Errorf("rules %v, %v; want 3", rules, err)
		}
		handles, err := c.RuleHandles(table, "services")
		if want := handlesOf(rules); err != nil || !slices.Equal(handles, want) || len(slices.Compact(slices.Sorted(slices.Values(want)))) != 3 {
			t.Errorf("handles %v, %v; want the different handles %v of the rules", handles, err, want)
		}
		for _, chain := range []string{"empty", "missing"} {
			if rules, err := c.Rules(table, chain); len(rules) != 0 || err != nil {
				t.Errorf("rules of chain %s: %v, %v; want none", chain, rules, err)
			}
		}
	})
}

// inspectedSets are the sets of foreign.
func inspectedSets(f nft.Family) []*nft.Set {
	addr := nft.TypeAddr(f)
	endpoint := nft.Typeof(nft.Daddr(f), nft.ThDport())
	return []*nft.Set{
		{Name: "addrs", Key: nft.Types(addr)},
		{Name: "clients", Key: nft.Typeof(nft.Saddr(f), nft.Constant(0)), Dynamic: true, Timeouts: true},
		{Name: "sources", Key: nft.Types(addr, nft.TypeInetService, addr), Interval: true},
		{Name: "prefixes", Key: nft.Types(addr), Interval: true},
		{Name: "verdicts", Key: nft.Types(addr, nft.TypeInetProto, nft.TypeInetService), Verdicts: true},
		{Name: "endpoints", Key: endpoint, Data: endpoint},
		{Name: "ports", Key: nft.Types(nft.TypeInetService)},
		{Name: "translate", Key: nft.Types(addr), Data: nft.Types(addr)},
		{Name: "to-port", Key: nft.Types(addr), Data: nft.Types(nft.TypeInetService)},
	}
}

func handlesOf(rules []nft.FoundRule) (handles []uint64) {
	for _, r := range rules {
		handles = append(handles, r.Handle)
	}
	return handles
}

// DNAT and Goto of a rule's content are constants only: one address with one
// port to which the rule translates, and the chain to which it goes.
func TestRuleContentOfOthers(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		load(t, foreign(f))
		c := open(t)
		table := &nft.Table{Family: f, Name: "lb"}
		to := netip.MustParseAddrPort("10.244.1.8:8080")
		if f == nft.IPv6 {
			to = netip.MustParseAddrPort("[fd00:244::8]:8080")
		}
		chains, err := c.Chains(table)
		if err != nil {
			t.Fatal(err)
		}
		var targets []string
		for _, chain := range chains {
			rules, err := c.Rules(table, chain.Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rules {
				if r.Goto != "" || r.DNAT.IsValid() {
					targets = append(targets, fmt.Sprintf("%s: %s %v", chain.Name, r.Goto, r.DNAT))
				}
			}
		}
		slices.Sort(targets)
		none := netip.AddrPort{}
		want := []string{
			fmt.Sprintf("one:  %v", to), fmt.Sprintf("pre: services %v", none), fmt.Sprintf("pre: services %v", none),
			fmt.Sprintf("services: one %v", none),
		}
		if !slices.Equal(targets, want) {
			t.Errorf("targets %q, want %q", targets, want)
		}
	})
}

// A rule that was found can be deleted, and no other is.
func TestDeleteRule(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		load(t, foreign(f))
		c := open(t)
		table := &nft.Table{Family: f, Name: "lb"}
		rules, err := c.Rules(table, "pre")
		if err != nil || len(rules) < 2 {
			t.Fatalf("rules %v, %v", rules, err)
		}
		for i, r := range rules {
			if want := "services"; r.Goto != want {
				t.Errorf("rule %d of chain pre goes to %q, want %q", i, r.Goto, want)
			}
		}
		b := nft.NewBatch(table)
		b.DeleteRule("pre", rules[1].Handle)
		commit(t, c, b)
		left, err := c.Rules(table, "pre")
		if want := slices.Delete(slices.Clone(rules), 1, 2); err != nil || !slices.Equal(handlesOf(left), handlesOf(want)) {
			t.Errorf("left are %v, %v; want %v", left, err, want)
		}
		if p := refused(t, c.Commit(b)); len(p) != 1 || p[0].Errno != unix.ENOENT {
			t.Errorf("deleted again: %v", p)
		}
	})
}

// Rules that were committed have the content that Rule.Content returns, and
// rules that differ have another one.
func TestRuleContent(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		c := open(t)
		to := netip.AddrPortFrom(vip(f, 7), 8080)
		clients := &nft.Set{Name: "clients", Key: nft.Typeof(nft.Saddr(f), nft.Constant(0)), Dynamic: true, Timeouts: true, Size: 4}
		known := func(id uint32, timeout time.Duration, to netip.AddrPort) nft.Rule {
			client := []nft.Expr{nft.Saddr(f), nft.Constant(id)}
			return nft.NewRule(nft.In(clients, client...), nft.Update(clients, timeout, client...), nft.MatchL4Proto(tcp), nft.DNAT(to))
		}
		rules := []nft.Rule{
			known(4096, 3*time.Hour, to),
			known(4097, 3*time.Hour, to),
			known(4096, time.Hour, to),
			known(4096, 3*time.Hour, netip.AddrPortFrom(to.Addr(), 8081)),
			nft.NewRule(nft.RandomIsZero(3), nft.DNAT(to)),
			nft.NewRule(nft.RandomIsZero(4), nft.DNAT(to)),
			nft.NewRule(nft.SetMarkBits(1), nft.Goto("two")),
			nft.NewRule(nft.Drop()),
		}
		table := &nft.Table{Family: f, Name: "lb", Sets: []*nft.Set{clients}, Chains: []*nft.Chain{{Name: "one", Rules: rules}, {Name: "two"}}}
		commitTable(t, c, table)
		found, err := c.Rules(table, "one")
		if err != nil || len(found) != len(rules) {
			t.Fatalf("rules %v, %v; want %d", found, err, len(rules))
		}
		for i, r := range found {
			for j, want := range rules {
				if r.Equal(want.Content(f)) != (i == j) {
					t.Errorf("rule %d (%+v) has the content of %q: %v", i, r.RuleContent, want, i != j)
				}
			}
		}
		if got := found[0]; got.DNAT != to || !slices.Equal(got.Numgens, []nft.Numgen{{Mod: 1, Offset: 4096}, {Mod: 1, Offset: 4096}}) {
			t.Errorf("content %+v, want id 4096 and %v", got, to)
		}
	})
}

func TestFindTable(t *testing.T) {
	newNamespace(t)
	c := open(t)
	v4, v6 := &nft.Table{Family: nft.IPv4, Name: "lb"}, &nft.Table{Family: nft.IPv6, Name: "lb"}
	handle := func(table *nft.Table) uint64 {
		t.Helper()
		found, ok, err := c.FindTable(table)
		if err != nil || ok != (found.Handle != 0) {
			t.Fatalf("%s is %+v, %v, %v", table, found, ok, err)
		}
		return found.Handle
	}
	if h := handle(v4); h != 0 {
		t.Errorf("no table has handle %d", h)
	}
	load(t, "table ip lb { }\ntable ip6 lb { }\ntable ip other { }")
	first := handle(v4)
	if first == 0 || handle(v6) == first || handle(v4) != first {
		t.Errorf("tables have handles %d, %d, %d", first, handle(v6), handle(v4))
	}
	b := nft.NewBatch(v4)
	b.AddProgram()
	commit(t, c, b)
	if handle(v4) != first {
		t.Error("adding the table that is there gives it another handle")
	}
	b.Reset()
	b.DeleteTable()
	commit(t, c, b)
	if handle(v4) != 0 {
		t.Error("a deleted table has a handle")
	}
	b.Reset()
	b.AddProgram()
	commit(t, c, b)
	if h := handle(v4); h == 0 || h == first {
		t.Errorf("a new table has handle %d, as the old one had", h)
	}
}

// A table that is not there has nothing.
func TestInspectNothing(t *testing.T) {
	newNamespace(t)
	c := open(t)
	for _, table := range []*nft.Table{{Family: nft.IPv4, Name: "missing"}, {Family: nft.IPv6, Name: "lb"}} {
		load(t, "table ip lb { set s { type ipv4_addr; }\nchain c { drop; }\n}")
		chains, err1 := c.Chains(table)
		sets, err2 := c.Sets(table)
		rules, err3 := c.Rules(table, "c")
		handles, err4 := c.RuleHandles(table, "c")
		_, ok, err5 := c.FindChain(table, "c")
		if err := errors.Join(err1, err2, err3, err4, err5); len(chains)+len(sets)+len(rules)+len(handles) != 0 || ok || err != nil {
			t.Errorf("%s has %v, %v, %v, %v, %v, %v", table, chains, sets, rules, handles, ok, err)
		}
	}
}

// What is read while others commit is of one generation, or ErrGeneration.
func TestInspectWhileOthersCommit(t *testing.T) {
	newNamespace(t)
	reader, writer := open(t), open(t)
	const chains = 400 // whose dump takes several pieces
	table := &nft.Table{Family: nft.IPv4, Name: "lb"}
	b := nft.NewBatch(table)
	b.AddTable("")
	for i := range chains {
		b.AddChain(&nft.Chain{Name: fmt.Sprintf("even-%d", i)})
	}
	commit(t, writer, b)

	stop, stopped := make(chan struct{}), make(chan error)
	go func() { // the connection is of this test's namespace, whichever thread uses it
		var err error
		for from, to := "even", "odd"; err == nil; from, to = to, from {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			b.Reset()
			for i := range chains {
				b.DeleteChain(fmt.Sprintf("%s-%d", from, i))
				b.AddChain(&nft.Chain{Name: fmt.Sprintf("%s-%d", to, i)})
			}
			err = writer.Commit(b)
		}
		stopped <- err
	}()
	begin := generation(t, reader)
	for reads := 0; reads < 20 || generation(t, reader)-begin < 10; {
		found, err := reader.Chains(table)
		if errors.Is(err, nft.ErrGeneration) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		reads++
		even := 0
		for _, f := range found {
			if strings.HasPrefix(f.Name, "even-") {
				even++
			}
		}
		if len(found) != chains || (even != 0 && even != chains) {
			t.Fatalf("%d chains, %d of them even", len(found), even)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// Reading is no transaction.
func TestReadingMovesNothing(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b, _ := newServices(t, c, nft.IPv4)
	b.Reset()
	gen := generation(t, c)
	table := &nft.Table{Family: nft.IPv4, Name: "lb"}
	_, err1 := c.Chains(table)
	_, err2 := c.Sets(table)
	_, err3 := c.Rules(table, "one")
	_, err4 := c.RuleHandles(table, "one")
	_, _, err5 := c.FindTable(table)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Error(err)
	}
	if now := generation(t, c); now != gen {
		t.Errorf("reading moved the generation from %d to %d", gen, now)
	}
}

// A dump that was given up does not get in the way of the next request.
func TestRequestAfterInterruptedDump(t *testing.T) {
	newNamespace(t)
	c := open(t)
	table := &nft.Table{Family: nft.IPv4, Name: "lb"}
	b := nft.NewBatch(table)
	b.AddTable("")
	const chains = 2000
	for i := range chains {
		b.AddChain(&nft.Chain{Name: fmt.Sprintf("chain-%d", i)})
	}
	commit(t, c, b)
	for range 3 {
		nft.BeginDump(c, unix.NFT_MSG_GETCHAIN)
		if found, err := c.Chains(table); len(found) != chains || err != nil {
			t.Fatalf("%d chains, %v; want %d", len(found), err, chains)
		}
		nft.BeginDump(c, unix.NFT_MSG_GETCHAIN)
		generation(t, c)
		nft.BeginDump(c, unix.NFT_MSG_GETCHAIN)
		b.Reset()
		b.AddChain(&nft.Chain{Name: "chain-0"})
		commit(t, c, b)
	}
}
