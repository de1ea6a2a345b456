package notation

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// VerdictCode returns the code of a verdict without the number of a queue or an
// error, which the kernel stores in the upper bits (NF_VERDICT_MASK).
func VerdictCode(code int32) int32 {
	if code >= 0 {
		code &= 0xff
	}
	return code
}

// Verdict returns a verdict in nft syntax.
func Verdict(code int32, chain string) string {
	name, known := verdictNames[VerdictCode(code)]
	switch {
	case !known:
		return "verdict " + strconv.Itoa(int(VerdictCode(code)))
	case chain != "":
		return name + " " + chain
	}
	return name
}

// verdictNames are the names of verdicts. The first four are NF_DROP and so on
// of linux/netfilter.h.
var verdictNames = map[int32]string{
	0: "drop", 1: "accept", 2: "stolen", 3: "queue",
	unix.NFT_CONTINUE: "continue", unix.NFT_RETURN: "return", unix.NFT_GOTO: "goto", unix.NFT_JUMP: "jump",
}
