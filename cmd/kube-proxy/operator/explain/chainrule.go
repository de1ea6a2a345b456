package explain

import (
	"github.com/google/nftables/expr"

	"github.com/nftproxy/nftproxy/nft"
)

// ChainRule is a rule of a chain in the kernel.
type ChainRule struct {
	Handle uint64
	// Text is the rule in nft syntax, as in Step.Rule.
	Text string
	// Translates and Masquerades report whether the rule can translate the
	// destination, or the source address.
	Translates, Masquerades bool
	// RejectWith is the error that the client gets if the packet matches, ""
	// if the rule does not reject.
	RejectWith string
}

// ChainRules reads the rules of a chain of the table, or of another program's.
func (k *Kernel) ChainRules(table *nft.Table, chain string) ([]ChainRule, error) {
	found, err := k.conn.Rules(table, chain)
	if err != nil {
		return nil, err
	}
	rules := make([]ChainRule, 0, len(found))
	for _, rule := range found {
		rules = append(rules, describe(k.table.Family, rule.Text(table.Family), rule))
	}
	return rules, nil
}

// describe returns a rule. What it does follows from its last expression.
func describe(f nft.Family, text string, rule nft.Rule) ChainRule {
	r := ChainRule{Handle: rule.Handle, Text: text}
	if len(rule.Expressions) == 0 {
		return r
	}
	const unreachable = "ICMP unreachable"
	switch e := rule.Expressions[len(rule.Expressions)-1].(type) {
	case *expr.NAT:
		r.Translates = e.Type == expr.NATTypeDestNAT
	case *expr.Masq:
		r.Masquerades = true
	case *expr.Reject:
		r.RejectWith = unreachable
		if with, err := rejection(f, e); err == nil {
			r.RejectWith = with
		}
	case *nft.Extension:
		if e.Target && e.Name == "REJECT" {
			r.RejectWith = unreachable
		}
	}
	return r
}
