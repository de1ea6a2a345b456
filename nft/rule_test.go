package nft_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// Rules that differ in one constant, or in their comment, are not equal, and
// have different hashes. Equal rules have equal hashes, whatever packets they
// saw.
func TestEqualRules(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		to := netip.AddrPortFrom(vip(f, 7), 8080)
		clients := clientSet(f, "clients")
		sticky := func(id uint32, timeout time.Duration, to netip.AddrPort) nft.Rule {
			client := []nft.Expr{nft.Saddr(f), nft.Priority()}
			return nft.NewRule(nft.SetPriorityTo(id), nft.In(clients, client...),
				nft.Update(clients, timeout, client...), nft.MatchL4Proto(tcp), nft.DNAT(to))
		}
		prefix := netip.PrefixFrom(to.Addr(), 20)
		rules := []nft.Rule{
			sticky(4096, 3*time.Hour, to),
			sticky(4097, 3*time.Hour, to),
			sticky(4096, time.Hour, to),
			sticky(4096, 3*time.Hour, netip.AddrPortFrom(to.Addr(), 8081)),
			sticky(4096, 3*time.Hour, netip.AddrPortFrom(to.Addr().Next(), 8080)),
			sticky(4096, 3*time.Hour, to).WithComment("other"),
			nft.NewRule(nft.RandomIsZero(3), nft.DNAT(to)),
			nft.NewRule(nft.RandomIsZero(4), nft.DNAT(to)),
			nft.NewRule(nft.SetMarkBits(1), nft.Goto("two")),
			nft.NewRule(nft.SetMarkBits(2), nft.Goto("two")),
			nft.NewRule(nft.Within(nft.Daddr(f), prefix), nft.Drop()),
			nft.NewRule(nft.NotWithin(nft.Daddr(f), prefix), nft.Drop()),
			nft.NewRule(nft.Within(nft.Saddr(f), prefix), nft.Drop()),
			nft.NewRule(nft.InInterface("eth0"), nft.Drop()),
			nft.NewRule(nft.InInterface("eth1"), nft.Drop()),
			nft.NewRule(nft.Drop()),
		}
		table := &nft.Table{
			Family: f, Name: "lb", Sets: []*nft.Set{clients},
			Chains: []*nft.Chain{{Name: "one", Rules: rules}, {Name: "again", Rules: rules}, {Name: "two"}},
		}
		nstest.Commit(t, c, table)
		found, err := c.Rules(table, "one")
		ids, errIDs := c.RuleIDs(table, "one")
		again, errAgain := c.RuleIDs(table, "again")
		if err := errors.Join(err, errIDs, errAgain); err != nil || len(found) != len(rules) || len(ids) != len(rules) {
			t.Fatalf("got rules %v and ids %v, %v; want %d", found, ids, err, len(rules))
		}
		for i, r := range found {
			for j, rule := range rules {
				if got := r.Equal(rule); got != (i == j) {
					t.Errorf("rule %q equals %q: got %v, want %v", rules[i].Text(f), rule.Text(f), got, i == j)
				}
				if got := ids[i].Hash == again[j].Hash; got != (i == j) {
					t.Errorf("rules %q and %q have the same hash: got %v, want %v", rules[i].Text(f), rule.Text(f), got,
						i == j)
				}
			}
		}
		if r := found[0]; r.DNAT() != to || !slices.Equal(r.Priorities(), []uint32{4096}) ||
			r.Set() != clients.Name || found[8].Target() != "two" {
			t.Errorf("got %v, %d, %s, %s", r.DNAT(), r.Priorities(), r.Set(), found[8].Target())
		}
	})
}
