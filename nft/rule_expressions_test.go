package nft_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables/expr"

	"github.com/nftproxy/nftproxy/nft"
)

// RuleExpressions returns the handles and expressions of the rules of a
// chain, and their comments.
func TestRuleExpressions(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, fmt.Sprintf(`table %s lb {
			chain last { drop; }
			chain c {
				meta l4proto tcp counter drop comment "no"
				jump last
				numgen random mod 3 0 goto last
			}
		}`, f))
		table := &nft.Table{Family: f, Name: "lb"}
		rules, err := c.RuleExpressions(table, "c")
		if err != nil {
			t.Fatal(err)
		}
		handles, err := c.RuleHandles(table, "c")
		if err != nil || len(handles) != len(rules) {
			t.Fatalf("got %d rules and handles %v, %v", len(rules), handles, err)
		}
		var got []string
		for i, rule := range rules {
			if rule.Handle != handles[i] {
				t.Errorf("rule %d: got handle %d, want %d", i, rule.Handle, handles[i])
			}
			words := []string{rule.Comment}
			for _, e := range rule.Expressions {
				words = append(words, strings.TrimPrefix(fmt.Sprintf("%T", e), "*expr."))
			}
			got = append(got, strings.Join(words, " "))
		}
		const want = "no Meta Cmp Counter Verdict; Verdict; Numgen Cmp Verdict"
		if text := strings.Join(got, ";"); text != want {
			t.Errorf("got %s, want %s", text, want)
		}
		jump, ok := rules[1].Expressions[0].(*expr.Verdict)
		if !ok || jump.Kind != expr.VerdictJump || jump.Chain != "last" {
			t.Errorf("got %+v, want jump last", rules[1].Expressions[0])
		}
	})
}

// The kernel returns the expressions that Rule.Expressions returns.
func TestExpressionsOfRules(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		sets := newStatementSets(f)
		rules := append(statementRules(f, sets), nft.NewRule(nft.Drop()).WithComment(strings.Repeat("long", 50)))
		// The table of the proxy has no limits.
		rules = slices.DeleteFunc(rules, func(r nft.Rule) bool { return strings.Contains(r.String(), "limit rate") })
		table := &nft.Table{Family: f, Name: "t", Sets: sets.all(), Chains: []*nft.Chain{
			{Name: "test", Rules: rules}, {Name: "next"},
		}}
		commitTable(t, c, table)
		found, err := c.RuleExpressions(table, "test")
		if err != nil || len(found) != len(rules) {
			t.Fatalf("got %d rules and error %v, want %d rules", len(found), err, len(rules))
		}
		for i, r := range rules {
			got, err := r.Expressions()
			if got, want := expressionsText(got), expressionsText(found[i]); err != nil || got != want {
				t.Errorf("rule %s: got %s and error %v, want %s", r, got, err, want)
			}
		}
	})
}

// expressionsText returns the fields of a rule's expressions, with the numbers
// that the kernel gives to registers of 16 bytes.
func expressionsText(r nft.RuleExpressions) string {
	words := []string{r.Comment}
	for _, e := range r.Expressions {
		words = append(words, fmt.Sprintf("%+v", e))
	}
	registers := regexp.MustCompile(`(Reg\w+):(8|12)\b`)
	return registers.ReplaceAllStringFunc(strings.Join(words, "; "), func(field string) string {
		return strings.NewReplacer(":8", ":1", ":12", ":2").Replace(field)
	})
}

// Expressions that are unknown are an error: they could decide about a packet.
func TestUnknownExpressions(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		load(t, fmt.Sprintf(`table %s lb {
			chain c {
				drop
				limit rate 1/second accept
			}
		}`, f))
		_, err := c.RuleExpressions(&nft.Table{Family: f, Name: "lb"}, "c")
		checkError(t, err, `rule 2 of chain c of table `+f.String()+` lb: expression "limit" is unknown`)
	})
}
