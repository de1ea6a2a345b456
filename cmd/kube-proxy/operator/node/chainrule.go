package node

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// ChainRule describes a rule of any chain.
type ChainRule struct {
	// Text is the rule in nft syntax, as in Step.Rule.
	Text string
	// Translates and Masquerades report whether the rule can translate the
	// destination, or the source address.
	Translates, Masquerades bool
	// RejectWith is the error that the client gets if the packet matches, ""
	// if the rule does not reject.
	RejectWith string
}

// Describe returns what a rule does to packets of a family that match, without
// the text of the rule. It follows from its last expression.
func Describe(f nft.Family, rule nft.Rule) (r ChainRule) {
	if len(rule.Expressions) == 0 {
		return r
	}
	switch e := rule.Expressions[len(rule.Expressions)-1].(type) {
	case *expr.NAT:
		r.Translates = e.Type == expr.NATTypeDestNAT
	case *expr.Masq:
		r.Masquerades = true
	case *expr.Reject:
		r.RejectWith = rejection(f, e)
	case *nft.Extension:
		if e.Target && e.Name == "REJECT" {
			r.RejectWith = unreachable
		}
	}
	return r
}

const unreachable = "ICMP unreachable"

// rejection returns the answer to a rejected packet of a family.
func rejection(f nft.Family, e *expr.Reject) string {
	const portUnreachable, portUnreachable6 = 3, 4 // linux/icmp.h, linux/icmpv6.h
	switch {
	case e.Type == unix.NFT_REJECT_TCP_RST:
		return "TCP reset"
	case e.Type != unix.NFT_REJECT_ICMP_UNREACH:
		return unreachable
	case f == nft.IPv4 && e.Code == portUnreachable, f == nft.IPv6 && e.Code == portUnreachable6:
		return "ICMP port unreachable"
	}
	return fmt.Sprintf("%s, code %d", unreachable, e.Code)
}
