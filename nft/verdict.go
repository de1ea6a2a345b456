package nft

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/notation"
)

// Verdict decides what happens to a packet: VerdictAccept, VerdictDrop,
// VerdictReturn, VerdictGoto(chain) or VerdictJump(chain). The zero Verdict
// is VerdictDrop.
type Verdict struct {
	code  int32
	chain string
}

// Verdicts without a chain.
var (
	VerdictDrop   = Verdict{code: 0}
	VerdictAccept = Verdict{code: 1}
	VerdictReturn = Verdict{code: unix.NFT_RETURN}
)

// Verdicts of a TraceEvent, or of rules of other programs.
var (
	VerdictContinue = Verdict{code: unix.NFT_CONTINUE} // to the next rule
	VerdictBreak    = Verdict{code: unix.NFT_BREAK}    // the rule does not match
	VerdictStolen   = Verdict{code: 2}                 // another part of the kernel has the packet
	VerdictQueue    = Verdict{code: 3}                 // a program decides
)

// VerdictGoto yields `goto chain`.
func VerdictGoto(chain string) Verdict { return Verdict{unix.NFT_GOTO, chain} }

// VerdictJump yields `jump chain`.
func VerdictJump(chain string) Verdict { return Verdict{unix.NFT_JUMP, chain} }

// Chain returns the chain of a goto or jump, or "".
func (v Verdict) Chain() string { return v.chain }

// VerdictOf returns the verdict of an expression.
func VerdictOf(e *expr.Verdict) Verdict { return newVerdict(int32(e.Kind), e.Chain) }

func newVerdict(code int32, chain string) Verdict { return Verdict{notation.VerdictCode(code), chain} }

// String returns the verdict in nft syntax.
func (v Verdict) String() string { return notation.Verdict(v.code, v.chain) }
