package trace

import (
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// stage is how far a packet came that no chain reports any more.
type stage uint8

const (
	beforeRules   stage = iota + 1 // the proxy's rules
	beforeRouting                  // the proxy's rules have translated it
	atRouting                      // it passed all chains before routing
	afterRouting                   // it was routed
)

// evidence is what can have lost a packet, as the kernel is now.
type evidence struct {
	route     ruleset.Reason // of the packet on its way to an endpoint
	full      bool           // connection tracking
	legacy    bool           // there are rules of legacy iptables
	ipsec     bool           // there are IPsec policies
	endpoints []netip.AddrPort
}

// blame returns the one cause for the loss of a packet that the evidence
// supports best.
func (e *evidence) blame(lost stage) ruleset.Reason {
	routed := lost == atRouting || lost == beforeRouting && e.route.Code != ""
	switch {
	case routed && e.route.Code != "":
		r := e.route
		r.Text = e.way() + ": " + r.Text
		return r
	case e.full && lost != atRouting:
		return e.reason(lost, ruleset.ConntrackFull, "connection tracking is full")
	case e.legacy && lost != atRouting:
		return e.reason(lost, ruleset.LegacyRules,
			"rules of legacy iptables, which report no packets; nftproxy doctor evaluates them")
	case e.ipsec && lost == afterRouting:
		return e.reason(lost, ruleset.IPsec, "an IPsec policy of this node (ip xfrm policy)")
	case lost == atRouting:
		return e.reason(lost, ruleset.NotReported, "the kernel has a route now; the packet may have been too large, "+
			"or its TTL was over")
	}
	return e.reason(lost, ruleset.NotReported, "neither connection tracking nor legacy iptables explains it; tc, eBPF "+
		"and drivers can drop packets, too")
}

func (e *evidence) reason(lost stage, code ruleset.Code, text string) ruleset.Reason {
	where := map[stage]string{
		beforeRules: "before the proxy's rules", beforeRouting: "after the proxy's rules",
		atRouting: e.way(), afterRouting: "after routing, " + e.way(),
	}
	return code.With(where[lost] + ": " + text)
}

// way describes the way to the endpoint. Several are those of which the packet
// was sent to one.
func (e *evidence) way() string {
	switch len(e.endpoints) {
	case 0:
		return "on the way to the endpoint"
	case 1:
		return fmt.Sprintf("on the way to endpoint %s", e.endpoints[0])
	}
	return fmt.Sprintf("on the way to one of %d endpoints, such as %s", len(e.endpoints), e.endpoints[0])
}
