package nft

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Rule describes a rule of a chain. The kernel applies its statements from
// left to right until one does not match.
type Rule struct {
	Statements []Statement
	Comment    string
}

// NewRule returns a rule with these statements.
func NewRule(statements ...Statement) Rule { return Rule{Statements: statements} }

// WithComment returns the rule with a comment, which is cut to 127 bytes.
func (r Rule) WithComment(comment string) Rule {
	r.Comment = comment
	return r
}

// String returns the rule in nft syntax.
func (r Rule) String() string {
	parts := make([]string, 0, len(r.Statements)+1)
	for _, s := range r.Statements {
		parts = append(parts, s.text)
	}
	if c := storedComment(r.Comment); c != "" {
		parts = append(parts, "comment "+quote(c))
	}
	return strings.Join(parts, " ")
}

// equalRules reports whether two lists of rules are equal.
func equalRules(a, b []Rule) bool {
	return slices.EqualFunc(a, b, func(a, b Rule) bool { return a.String() == b.String() })
}

// AddRules appends the rules of c to the chain with the name of c.
func (b *Batch) AddRules(c *Chain) {
	for i := range c.Rules {
		m := sentMessage{op: opAddRule, object: c.Name, rule: &c.Rules[i]}
		flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_APPEND)
		b.message(m, unix.NFT_MSG_NEWRULE, flags, func(w *messageWriter) { b.ruleBody(w, m) })
	}
}

// DeleteRule deletes the rule of a chain that has the handle (see
// Conn.Rules). The commit fails if the chain has no such rule.
func (b *Batch) DeleteRule(chain string, handle uint64) {
	m := sentMessage{op: opDeleteRule, object: chain, handle: handle}
	b.message(m, unix.NFT_MSG_DELRULE, 0, func(w *messageWriter) {
		w.string(unix.NFTA_RULE_TABLE, b.table.Name)
		w.string(unix.NFTA_RULE_CHAIN, chain)
		w.u64(unix.NFTA_RULE_HANDLE, handle)
	})
}

func (b *Batch) ruleBody(w *messageWriter, m sentMessage) {
	w.string(unix.NFTA_RULE_TABLE, b.table.Name)
	w.string(unix.NFTA_RULE_CHAIN, m.object)
	at := w.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, s := range m.rule.Statements {
		if s.invalid != "" {
			b.refuse(m.op, m.objectText(), s.invalid)
		}
		for _, e := range s.exprs {
			if err := w.expr(b.table.Family, e); err != nil {
				b.refuse(m.op, m.objectText(), err.Error())
			}
		}
	}
	w.unnest(at)
	w.comment(unix.NFTA_RULE_USERDATA, m.rule.Comment)
}

// FoundRule is a rule in the kernel.
type FoundRule struct {
	// Handle is the number of the rule, which the kernel never assigns twice
	// within a table.
	Handle uint64
	RuleContent
}

// Rules reads the rules of a chain in their order. It returns none if the
// chain does not exist. See Chains for ErrGeneration.
func (c *Conn) Rules(t *Table, chain string) ([]FoundRule, error) {
	return dump(c, kindRule, t, chain, func(msg []byte) (FoundRule, bool) {
		rule, of := parseRule(msg)
		return rule, of == chain
	})
}

// RuleHandles reads the handles of the rules of a chain. It is cheaper than
// Rules.
func (c *Conn) RuleHandles(t *Table, chain string) ([]uint64, error) {
	return dump(c, kindRule, t, chain, func(msg []byte) (handle uint64, ok bool) {
		eachAttr(msg, func(typ uint16, value []byte) {
			switch typ {
			case unix.NFTA_RULE_CHAIN:
				ok = cString(value) == chain
			case unix.NFTA_RULE_HANDLE:
				handle = be64(value)
			}
		})
		return handle, ok
	})
}

// parseRule returns a rule and the name of its chain.
func parseRule(msg []byte) (rule FoundRule, chain string) {
	eachAttr(msg, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_RULE_CHAIN:
			chain = cString(value)
		case unix.NFTA_RULE_HANDLE:
			rule.Handle = be64(value)
		case unix.NFTA_RULE_EXPRESSIONS:
			rule.RuleContent = parseRuleContent(value)
		}
	})
	return rule, chain
}
