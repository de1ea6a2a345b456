package nft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// A rule that was written equals the one that is found.
func TestFoundRules(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		sets := newStatementSets(f)
		rules := append(statementRules(f, sets), nft.NewRule(nft.Drop()).WithComment(strings.Repeat("long", 50)))
		table := &nft.Table{Family: f, Name: "t", Sets: sets.all(), Chains: []*nft.Chain{
			{Name: "test", Rules: rules}, {Name: "next"},
		}}
		commitTable(t, c, table)
		found, err := c.Rules(table, "test")
		if err != nil || len(found) != len(rules) {
			t.Fatalf("got %d rules and error %v, want %d rules", len(found), err, len(rules))
		}
		for i, r := range rules {
			if !r.Equal(found[i]) {
				t.Errorf("rule %s: got %s, want %s", r.Text(f), expressionsText(found[i]), expressionsText(r))
			}
		}
	})
}

// expressionsText returns the fields of a rule's expressions.
func expressionsText(r nft.Rule) string {
	words := []string{r.Comment}
	for _, e := range r.Expressions {
		words = append(words, fmt.Sprintf("%+v", e))
	}
	return strings.Join(words, "; ")
}

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
		commitTable(t, c, table)
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
