package ruleset

import (
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Reason is a reason for which new connections are rejected or dropped. A
// counter counts their packets. It belongs to a chain of the same name, which
// maps and rules lead to, so that a trace of a packet names the reason.
// SourceRange has no such chain: its counter is in the firewall chains.
type Reason string

// The reasons. Their values do not change between versions.
const (
	NoEndpoints        Reason = "NoEndpoints"        // on any node
	NoLocalEndpoints   Reason = "NoLocalEndpoints"   // on this node, with a traffic policy Local
	NoWeight           Reason = "NoWeight"           // all endpoints have weight 0
	UnknownPort        Reason = "UnknownPort"        // of a ClusterIP
	UnallocatedAddress Reason = "UnallocatedAddress" // of a service CIDR
	SourceRange        Reason = "SourceRange"        // loadBalancerSourceRanges exclude the client
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{NoEndpoints, NoLocalEndpoints, NoWeight, UnknownPort, UnallocatedAddress, SourceRange}
}

// ReasonOf returns the reason whose packets a counter counts. ok is false for
// another counter.
func ReasonOf(counter string) (r Reason, ok bool) {
	for r, name := range reasonNames {
		if name == counter {
			return r, true
		}
	}
	return "", false
}

// name returns the name of the counter, and of the chain.
func (r Reason) name() string { return reasonNames[r] }

var reasonNames = map[Reason]string{
	NoEndpoints:        "reject-no-endpoints",
	NoLocalEndpoints:   "drop-no-local-endpoints",
	NoWeight:           "reject-no-weight",
	UnknownPort:        "reject-unknown-port",
	UnallocatedAddress: "drop-unallocated-address",
	SourceRange:        "drop-source-range",
}

// Refused is a connection that the rules refuse.
type Refused struct {
	Source      netip.Addr
	Destination netip.AddrPort
	Protocol    cluster.Protocol
	// ServicePort is the namespace/name:port that owns the destination, "" if
	// none does.
	ServicePort string
	// Set is the name of the set with the last row that the packet found.
	Set string
}

// Text returns the reason for people.
func (r Reason) Text(c Refused) string {
	switch r {
	case NoEndpoints:
		return c.ServicePort + " has no ready endpoint on any node"
	case NoLocalEndpoints:
		policy := "externalTrafficPolicy"
		if c.Set == setNoEndpointServices { // which has a row for a ClusterIP only
			policy = "internalTrafficPolicy"
		}
		return fmt.Sprintf("%s has %s Local and no ready endpoint on this node", c.ServicePort, policy)
	case NoWeight:
		return "all ready endpoints of " + c.ServicePort + " that the client may use have weight 0"
	case UnknownPort:
		return fmt.Sprintf("%s is a ClusterIP, but its Service has no port %d/%s",
			c.Destination.Addr(), c.Destination.Port(), c.Protocol)
	case UnallocatedAddress:
		return fmt.Sprintf("%s is in a service CIDR, but no Service has it", c.Destination.Addr())
	default:
		return fmt.Sprintf("loadBalancerSourceRanges of %s do not include %s", c.ServicePort, c.Source)
	}
}

// Rejects reports whether the packets are rejected. Otherwise they are dropped.
func (r Reason) Rejects() bool { return r == NoEndpoints || r == NoWeight || r == UnknownPort }

// Counter returns the counter of the packets. A client that gets no answer
// repeats its packet, and each of them is counted.
func (r Reason) Counter() *nft.Counter { return &nft.Counter{Name: r.name()} }

// reasonChains returns the chains of the reasons. Kernels before 6.12 validate
// all chains that a row leads to, once for each row. Therefore each chain
// rejects packets itself, and the firewall chains count packets themselves.
func (p *program) reasonChains() []*nft.Chain {
	return []*nft.Chain{
		p.reject(NoEndpoints), p.noLocalEndpoints(), p.reject(NoWeight), p.reject(UnknownPort),
		drop(UnallocatedAddress),
	}
}

// noLocalEndpoints returns the chain for packets to a service port with a
// traffic policy Local that has no endpoint on this node. If connections to
// endpoints that are gone are reset, a packet without SYN belongs to one of
// them:
//
//	counter name "drop-no-local-endpoints"
//	tcp flags syn drop
//	reject with tcp reset
//	drop
func (p *program) noLocalEndpoints() *nft.Chain {
	if !p.resetStale {
		return drop(NoLocalEndpoints)
	}
	return &nft.Chain{Name: NoLocalEndpoints.name(), Rules: []nft.Rule{
		nft.NewRule(nft.Count(NoLocalEndpoints.Counter())),
		nft.NewRule(nft.TCPHasSyn(), nft.Drop()),
		nft.NewRule(nft.RejectTCPReset()),
		nft.NewRule(nft.Drop()),
	}}
}

// reject returns the chain of a reason to reject packets. TCP needs a reset:
// after an ICMPv6 error alone, a TCP client on this machine waits one second
// for its retransmission, because the kernel drops the error while the socket
// is in connect().
//
//	counter name "reject-no-endpoints"
//	meta l4proto tcp reject with tcp reset
//	reject
func (p *program) reject(r Reason) *nft.Chain {
	return &nft.Chain{Name: r.name(), Rules: []nft.Rule{
		nft.NewRule(nft.Count(r.Counter())),
		nft.NewRule(nft.RejectTCPReset()),
		nft.NewRule(nft.Reject(p.layout.family)),
	}}
}

// drop returns the chain of a reason to drop packets:
//
//	counter name "drop-no-local-endpoints" drop
func drop(r Reason) *nft.Chain {
	return &nft.Chain{Name: r.name(), Rules: []nft.Rule{nft.NewRule(nft.Count(r.Counter()), nft.Drop())}}
}
