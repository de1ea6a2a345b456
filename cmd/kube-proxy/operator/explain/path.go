package explain

import (
	"math/big"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// path is one way of the packet through the rules. Where the kernel draws a
// random number, a path forks.
type path struct {
	packet packet
	share  *big.Rat // probability of this path
	registers
	at      position
	callers []position // to which `return` goes

	// History.
	rows     []nft.Row // that were found, by sets and maps that dispatch
	marked   *place    // where the packet was marked
	known    bool      // a client with session affinity
	recorded bool      // as a client with session affinity
	counted  string    // the last named counter that counted the packet

	dispatched ending // at the hook prerouting or output
	end        ending // at the last hook
}

// position is an expression of a rule of a chain.
type position struct {
	chain            string
	rule, expression int
}

// place is a rule that decided something.
type place struct{ chain, comment string }

// action is the fate of a packet.
type action string

// Actions.
const (
	undecided action = ""
	accepted  action = "accept" // by a rule, or at the end of the base chain
	rejected  action = "reject"
	dropped   action = "drop"
)

// ending is how a path through the chains of a hook ends.
type ending struct {
	action       action
	by           place
	rejectWith   string
	to           netip.AddrPort // the endpoint, if the destination was translated
	masquerading *place         // nil if the source address is kept
}

// fork returns a copy of the path that has a part of its probability.
func (p *path) fork(part *big.Rat) *path {
	fork := *p
	fork.share = new(big.Rat).Mul(p.share, part)
	fork.callers = slices.Clone(p.callers)
	fork.rows = slices.Clone(p.rows)
	return &fork
}

// enter starts or continues the path at the first rule of a chain.
func (p *path) enter(chain string) { p.at = position{chain: chain} }

// nextRule continues with the next rule of the chain.
func (p *path) nextRule() { p.at = position{chain: p.at.chain, rule: p.at.rule + 1} }

// back continues after the rule that jumped to the chain. At the end of a base
// chain the packet is accepted.
func (p *path) back() {
	if len(p.callers) == 0 {
		p.end.action = accepted
		return
	}
	p.at = p.callers[len(p.callers)-1]
	p.callers = p.callers[:len(p.callers)-1]
	p.nextRule()
}

// follow applies a verdict of the rule at which the path is.
func (p *path) follow(v nft.Verdict, by place) {
	switch {
	case v.Chain() != "":
		if v == nft.VerdictJump(v.Chain()) {
			p.callers = append(p.callers, p.at)
		}
		p.enter(v.Chain())
	case v == nft.VerdictReturn:
		p.back()
	case v == nft.VerdictAccept:
		p.end.action, p.end.by = accepted, by
	default:
		p.end.action, p.end.by = dropped, by
	}
}
