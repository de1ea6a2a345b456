package nft

import "golang.org/x/sys/unix"

// Table describes a table: its sets and the chains that make up the program. What is in the sets, the rows, is not part of it.
type Table struct {
	Family  Family
	Name    string
	Comment string
	Sets    []*Set
	Chains  []*Chain
}

// String names the table as nft does: `table ip kube-proxy`.
func (t *Table) String() string { return "table " + t.Family.String() + " " + t.Name }

// Chain describes a chain and its rules. A chain with a Hook is a base chain, where packets enter.
type Chain struct {
	Name    string
	Hook    *Hook
	Rules   []Rule
	Comment string
}

// Hook says where a base chain gets its packets, and when.
type Hook struct {
	Type     ChainType
	Point    HookPoint
	Priority int32
}

// ChainType is the type of a base chain.
type ChainType string

// Types of base chains.
const (
	TypeFilter ChainType = "filter"
	TypeNAT    ChainType = "nat"
)

// HookPoint is the place of a hook on a packet's way; its value is the kernel's NF_INET_* number.
type HookPoint uint32

// The places where base chains can be hooked.
const (
	Prerouting  HookPoint = unix.NF_INET_PRE_ROUTING
	Input       HookPoint = unix.NF_INET_LOCAL_IN
	Forward     HookPoint = unix.NF_INET_FORWARD
	Output      HookPoint = unix.NF_INET_LOCAL_OUT
	Postrouting HookPoint = unix.NF_INET_POST_ROUTING
)

// String returns the place as nft names it.
func (h HookPoint) String() string {
	switch h {
	case Prerouting:
		return "prerouting"
	case Input:
		return "input"
	case Forward:
		return "forward"
	case Output:
		return "output"
	case Postrouting:
		return "postrouting"
	}
	return "unknown"
}

// Priorities of base chains that nft has names for.
const (
	PriorityDstNAT int32 = -100
	PriorityFilter int32 = 0
	PrioritySrcNAT int32 = 100
)

// Rule is a rule of a chain: statements that are carried out from left to right until one does not match.
type Rule struct {
	Statements []Statement
	Comment    string
}

// NewRule returns a rule of these statements.
func NewRule(statements ...Statement) Rule { return Rule{Statements: statements} }

// WithComment returns the rule with a comment, which is cut to MaxComment.
func (r Rule) WithComment(comment string) Rule {
	r.Comment = comment
	return r
}

// String returns the rule in nft syntax.
func (r Rule) String() string {
	s := ""
	for i, st := range r.Statements {
		if i > 0 {
			s += " "
		}
		s += st.text
	}
	if c := storedComment(r.Comment); c != "" {
		s += " comment " + quote(c)
	}
	return s
}

// equalRules says whether two lists of rules are the same.
func equalRules(a, b []Rule) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].String() != b[i].String() {
			return false
		}
	}
	return true
}

// sameHook says whether two chains are hooked at the same place, or both are no base chains.
func sameHook(a, b *Hook) bool { return a == b || (a != nil && b != nil && *a == *b) }

// SameProgram says whether two chains are equal: name, hook, comment and rules. Rules are equal if they read the same.
func SameProgram(a, b *Chain) bool {
	return a.Name == b.Name && a.Comment == b.Comment && sameHook(a.Hook, b.Hook) && equalRules(a.Rules, b.Rules)
}
