package notation

import "github.com/google/nftables/expr"

// Header is a field of a packet header.
type Header struct {
	Name   string // in nft syntax
	Base   expr.PayloadBase
	Offset uint32
	Type   Type
}

// Header fields that have names. Only rules of other programs load the first
// two.
var (
	protocol = Header{"ip protocol", expr.PayloadBaseNetworkHeader, 9, TypeInetProto}
	nexthdr  = Header{"ip6 nexthdr", expr.PayloadBaseNetworkHeader, 6, TypeInetProto}

	Saddr  = Header{"ip saddr", expr.PayloadBaseNetworkHeader, 12, TypeIPv4Addr}
	Daddr  = Header{"ip daddr", expr.PayloadBaseNetworkHeader, 16, TypeIPv4Addr}
	Saddr6 = Header{"ip6 saddr", expr.PayloadBaseNetworkHeader, 8, TypeIPv6Addr}
	Daddr6 = Header{"ip6 daddr", expr.PayloadBaseNetworkHeader, 24, TypeIPv6Addr}
	Sport  = Header{"th sport", expr.PayloadBaseTransportHeader, 0, TypeInetService}
	Dport  = Header{"th dport", expr.PayloadBaseTransportHeader, 2, TypeInetService}

	TCPSequence = Header{"tcp sequence", expr.PayloadBaseTransportHeader, 4, typeSequence}
	TCPFlags    = Header{"tcp flags", expr.PayloadBaseTransportHeader, 13, typeTCPFlags}
)

var headers = []Header{protocol, nexthdr, Saddr, Daddr, Saddr6, Daddr6, Sport, Dport, TCPSequence, TCPFlags}

// Load returns the expression that loads the field into a register.
func (h Header) Load(register uint32) *expr.Payload {
	return &expr.Payload{DestRegister: register, Base: h.Base, Offset: h.Offset, Len: uint32(h.Type.size)}
}
