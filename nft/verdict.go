package nft

import (
	"strconv"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
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

// newVerdict returns a verdict without the number of a queue or an error, which
// the kernel stores in the upper bits of the code (NF_VERDICT_MASK).
func newVerdict(code int32, chain string) Verdict {
	if code >= 0 {
		code &= 0xff
	}
	return Verdict{code, chain}
}

// String returns the verdict in nft syntax.
func (v Verdict) String() string {
	name, known := verdictNames[v.code]
	switch {
	case !known:
		return "verdict " + strconv.Itoa(int(v.code))
	case v.chain != "":
		return name + " " + v.chain
	}
	return name
}

var verdictNames = map[int32]string{
	VerdictDrop.code: "drop", VerdictAccept.code: "accept", VerdictStolen.code: "stolen", VerdictQueue.code: "queue",
	unix.NFT_CONTINUE: "continue", unix.NFT_RETURN: "return", unix.NFT_GOTO: "goto", unix.NFT_JUMP: "jump",
}

// parseVerdict returns the verdict in an nft_data, or the zero Verdict.
func parseVerdict(data []byte) Verdict { return parseVerdictData(attr(data, unix.NFTA_DATA_VERDICT)) }

// parseVerdictData is parseVerdict without the outer attribute.
func parseVerdictData(v []byte) Verdict {
	return newVerdict(int32(be32(attr(v, unix.NFTA_VERDICT_CODE))), cString(attr(v, unix.NFTA_VERDICT_CHAIN)))
}
