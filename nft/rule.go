package nft

import (
	"bytes"
	"hash/maphash"
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
// RuleID). The commit fails if the chain has no such rule.
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

// RuleID identifies a rule in the kernel as long as the process runs.
type RuleID struct {
	// Handle is the number of the rule, which the kernel never assigns twice
	// within a table. A rule that replaces another one keeps its handle.
	Handle uint64
	// Hash is a hash of the expressions and the comment. The hash of a rule
	// with an anonymous counter or a quota changes with the packets.
	Hash uint64
}

// hashSeed is the seed of RuleID.Hash.
var hashSeed = maphash.MakeSeed()

// RuleIDs identifies the rules of a chain in their order. It is cheaper than
// Rules.
func (c *Conn) RuleIDs(t *Table, chain string) ([]RuleID, error) {
	return dump(c, kindRule, t, chain, func(msg []byte) (RuleID, bool) {
		id, of := parseRuleID(msg)
		return id, string(of) == chain
	})
}

// parseRuleID returns the identity of a rule, and the name of its chain.
func parseRuleID(msg []byte) (id RuleID, chain []byte) {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	eachAttr(msg, func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_RULE_CHAIN:
			chain = bytes.TrimRight(value, "\x00")
		case unix.NFTA_RULE_HANDLE:
			id.Handle = be64(value)
		case unix.NFTA_RULE_EXPRESSIONS, unix.NFTA_RULE_USERDATA:
			h.WriteByte(byte(typ))
			h.Write(value)
		}
	})
	id.Hash = h.Sum64()
	return id, chain
}
