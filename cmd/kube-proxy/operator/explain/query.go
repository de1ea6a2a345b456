package explain

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Query is a hypothetical packet: the first one of a connection.
type Query struct {
	Destination netip.AddrPort
	// Protocol is the number of TCP, UDP or SCTP.
	Protocol uint8
	// Source is the address of the client. A packet from an address of this
	// node enters the chains of the hook output, others the chains of
	// prerouting.
	Source netip.Addr
	// From describes the source in the result: pod, node or outside. It can be
	// empty.
	From string
	// Interface is the name of the interface on which the packet arrives. By
	// default it is the interface of the route to the source.
	Interface string
}

// protocolNames are the protocols of service ports.
var protocolNames = [...]struct {
	number uint8
	name   string
}{{unix.IPPROTO_TCP, "tcp"}, {unix.IPPROTO_UDP, "udp"}, {unix.IPPROTO_SCTP, "sctp"}}

// ParseProtocol returns the number of a protocol: tcp, udp or sctp.
func ParseProtocol(name string) (uint8, error) {
	for _, p := range protocolNames {
		if p.name == name {
			return p.number, nil
		}
	}
	return 0, fmt.Errorf("protocol %q is unknown: want tcp, udp or sctp", name)
}

// ProtocolName returns the name of a protocol, or its number.
func ProtocolName(number uint8) string {
	for _, p := range protocolNames {
		if p.number == number {
			return p.name
		}
	}
	return fmt.Sprint(number)
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
