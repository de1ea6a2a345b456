package nft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables/expr"

	"github.com/nftproxy/nftproxy/nft"
)

// Rules returns the handles and expressions of the rules of a chain, and their
// comments.
func TestRuleExpressions(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, fmt.Sprintf(`table %s lb {
			chain last { drop; }
			chain c {
				meta l4proto tcp counter drop comment "no"
				jump last
				numgen inc mod 1 offset 7 7 numgen random mod 3 0 goto last
			}
		}`, f))
		table := &nft.Table{Family: f, Name: "lb"}
		rules, err := c.Rules(table, "c")
		if err != nil {
			t.Fatal(err)
		}
		ids, err := c.RuleIDs(table, "c")
		if err != nil || len(ids) != len(rules) {
			t.Fatalf("got %d rules and %v, %v", len(rules), ids, err)
		}
		var got []string
		for i, rule := range rules {
			if rule.Handle != ids[i].Handle {
				t.Errorf("rule %d: got handle %d, want %d", i, rule.Handle, ids[i].Handle)
			}
			words := []string{rule.Comment}
			for _, e := range rule.Expressions {
				words = append(words, strings.TrimPrefix(fmt.Sprintf("%T", e), "*expr."))
			}
			got = append(got, strings.Join(words, " "))
		}
		const want = "no Meta Cmp Counter Verdict; Verdict; Numgen Cmp Numgen Cmp Verdict"
		if text := strings.Join(got, ";"); text != want {
			t.Errorf("got %s, want %s", text, want)
		}
		jump, ok := rules[1].Expressions[0].(*expr.Verdict)
		if !ok || jump.Kind != expr.VerdictJump || jump.Chain != "last" {
			t.Errorf("got %+v, want jump last", rules[1].Expressions[0])
		}
		if got := rules[2].Constants(); !slices.Equal(got, []uint32{7}) {
			t.Errorf("got constants %d, want 7", got)
		}
	})
}

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

// DNAT returns one address with one port, and Target one chain.
func TestConstantsOfForeignRules(t *testing.T) {
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
				if r.Target() != "" || r.DNAT().IsValid() {
					got = append(got, fmt.Sprintf("%s: target %q, dnat %v", chain.Name, r.Target(), r.DNAT()))
				}
			}
		}
		slices.Sort(got)
		want := []string{
			fmt.Sprintf(`one: target "", dnat %v`, endpointAddr(f)),
			`pre: target "services", dnat invalid AddrPort`,
			`pre: target "services", dnat invalid AddrPort`,
			`services: target "one", dnat invalid AddrPort`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// Expressions that the package does not know are read, and cannot be written.
func TestUnknownExpressions(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, fmt.Sprintf(`table %s lb {
			chain c {
				drop
				rt classid 1 accept
				rt classid 2 accept
			}
		}`, f))
		table := &nft.Table{Family: f, Name: "lb"}
		rules, err := c.Rules(table, "c")
		if err != nil || len(rules) != 3 {
			t.Fatalf("got %d rules and error %v, want 3 rules", len(rules), err)
		}
		got, want := rules[1].Text(f), "rt … … 0x1000000 accept"
		if got != want || rules[1].Equal(rules[2]) || !rules[1].Equal(rules[1]) {
			t.Errorf("got rule %s, equal to another one: %v; want %s", got, rules[1].Equal(rules[2]), want)
		}
		b := nft.NewBatch(table)
		b.AddRules(&nft.Chain{Name: "c", Rules: rules[1:2]})
		checkProblem(t, c, b, "add rule c rt … … 0x1000000 accept: invalid argument: the expression is unknown")
	})
}
