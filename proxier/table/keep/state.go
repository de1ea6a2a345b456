package keep

import (
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// state is what a Keeper knows about its table: what it committed, and what it
// found out about changes by other programs.
type state struct {
	link
	source    Source
	have      *committed
	leftovers leftovers
	failing   map[Owner]struct{} // that have trouble
	// structure is that of the table as it was committed, rules the identities
	// of the rules of the program, of chains on demand, and of chains of owners
	// that the scrubber compared.
	structure *structure
	rules     ruleIDs
	verified  int     // link.seen at the last verification
	suspect   bool    // a verification after a commit failed
	damaged   *damage // nil unless a repair of rows is under way
	scrubbed  int     // link.seen when the scrubber began its last complete pass, or at the last rewrite
}

// isVerified reports whether no other program committed between the last
// verification and the last time that the ruleset was read.
func (s *state) isVerified() bool { return s.verified == s.seen }

// Forget forgets the failures of an owner.
func (s *state) Forget(o Owner) {
	o.Kept().trouble = nil
	delete(s.failing, o)
}

// ruleIDs are the identities of the rules of chains when they were last
// compared with what was committed. A rule that replaces another one keeps its
// handle, but not its identity.
type ruleIDs map[string][]nft.RuleID

// same reports whether a chain still has the rules that were compared.
func (r ruleIDs) same(chain string, now []nft.RuleID) bool {
	before, known := r[chain]
	return known && slices.Equal(before, now)
}
