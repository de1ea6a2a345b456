package nft_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// The DNAT and Goto of a rule's content are constants: one address with one
// port, and one chain.
func TestForeignRuleContent(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, foreign(f))
		table := &nft.Table{Family: f, Name: "lb"}
		chains, err := c.Chains(table)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, chain := range chains {
			rules, err := c.Rules(table, chain.Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rules {
				if r.Goto != "" || r.DNAT.IsValid() {
					got = append(got, fmt.Sprintf("%s: goto %q, dnat %v", chain.Name, r.Goto, r.DNAT))
				}
			}
		}
		slices.Sort(got)
		want := []string{
			fmt.Sprintf(`one: goto "", dnat %v`, endpointAddr(f)),
			`pre: goto "services", dnat invalid AddrPort`,
			`pre: goto "services", dnat invalid AddrPort`,
			`services: goto "one", dnat invalid AddrPort`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// A committed rule has the content that Rule.Content returns. Rules that
// differ in a constant have different content.
func TestRuleContent(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		to := netip.AddrPortFrom(vip(f, 7), 8080)
		clients := clientSet(f, "clients")
		sticky := func(id uint32, timeout time.Duration, to netip.AddrPort) nft.Rule {
			client := []nft.Expr{nft.Saddr(f), nft.Constant(id)}
			return nft.NewRule(nft.In(clients, client...), nft.Update(clients, timeout, client...),
				nft.MatchL4Proto(tcp), nft.DNAT(to))
		}
		rules := []nft.Rule{
			sticky(4096, 3*time.Hour, to),
			sticky(4097, 3*time.Hour, to),
			sticky(4096, time.Hour, to),
			sticky(4096, 3*time.Hour, netip.AddrPortFrom(to.Addr(), 8081)),
			nft.NewRule(nft.RandomIsZero(3), nft.DNAT(to)),
			nft.NewRule(nft.RandomIsZero(4), nft.DNAT(to)),
			nft.NewRule(nft.SetMarkBits(1), nft.Goto("two")),
			nft.NewRule(nft.Drop()),
		}
		table := &nft.Table{
			Family: f, Name: "lb", Sets: []*nft.Set{clients},
			Chains: []*nft.Chain{{Name: "one", Rules: rules}, {Name: "two"}},
		}
		commitTable(t, c, table)
		found, err := c.Rules(table, "one")
		if err != nil || len(found) != len(rules) {
			t.Fatalf("got rules %v, %v; want %d", found, err, len(rules))
		}
		for i, r := range found {
			for j, rule := range rules {
				if got, want := r.Equal(rule.Content(f)), i == j; got != want {
					t.Errorf("rule %d %+v equals the content of %q: got %v, want %v", i, r, rule, got, want)
				}
			}
		}
		numgens := []nft.Numgen{{Mod: 1, Offset: 4096}, {Mod: 1, Offset: 4096}}
		if got := found[0]; got.DNAT != to || !slices.Equal(got.Numgens, numgens) {
			t.Errorf("got content %+v, want DNAT %v and numgens %v", got, to, numgens)
		}
	})
}
