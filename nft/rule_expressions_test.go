package nft_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/nftables/expr"

	"github.com/nftproxy/nftproxy/nft"
)

// RuleExpressions returns the expressions of the rules of a chain, and their
// comments.
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
		rules, err := c.RuleExpressions(&nft.Table{Family: f, Name: "lb"}, "c")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rule := range rules {
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
