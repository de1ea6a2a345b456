package explain

import (
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Query is a hypothetical packet: the first one of a connection.
type Query struct {
	Destination netip.AddrPort
	Protocol    cluster.Protocol
	// Source is the address of the client. A packet from an address of this
	// node enters the chains of the hook output, others the chains of
	// prerouting.
	Source netip.Addr
	// From describes the source in the result. It can be empty.
	From string
	// Interface is the name of the interface on which the packet arrives. By
	// default it is the interface of the route to the source.
	Interface string
}

func (q *Query) family() nft.Family { return nft.FamilyOf(q.Destination.Addr()) }

func (q *Query) validate() error {
	if !q.family().Of(q.Destination.Addr()) {
		return fmt.Errorf("destination %s is neither IPv4 nor IPv6", q.Destination)
	}
	if !q.family().Of(q.Source) {
		return fmt.Errorf("source %s and destination %s are of different families", q.Source, q.Destination.Addr())
	}
	return nil
}
