package conntrack

import (
	"errors"
	"net/netip"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

var errNoTuple = errors.New("flow without addresses")

// decodeFlow decodes the attributes of an IPCTNL_MSG_CT_NEW message, of which
// dumps consist. It ignores unknown attributes, and numbers of unexpected
// length, and does not keep b.
func decodeFlow(b []byte) (f trackedFlow, err error) {
	nfnetlink.EachAttr(b, f.setAttr)
	if !sameFamily(f.original.src, f.original.dst, f.reply.src, f.reply.dst) {
		return trackedFlow{}, errNoTuple
	}
	return f, nil
}

func sameFamily(addrs ...netip.AddrPort) bool {
	for _, a := range addrs {
		if !a.IsValid() || a.Addr().Is4() != addrs[0].Addr().Is4() {
			return false
		}
	}
	return true
}

func (f *trackedFlow) setAttr(kind uint16, data []byte) {
	switch kind {
	case ctaTupleOrig:
		f.setTuple(&f.original, zoneOriginal, data)
	case ctaTupleReply:
		f.setTuple(&f.reply, zoneReply, data)
	case ctaID:
		f.id = nfnetlink.Uint32(data)
	case ctaZone:
		f.zone = zone{nfnetlink.Uint16(data), zoneBoth}
	case ctaStatus:
		f.status = nfnetlink.Uint32(data)
	case ctaProtoInfo:
		f.state = stateOf(data)
	}
}

// stateOf decodes the state in CTA_PROTOINFO. It is 0 for protocols without
// states.
func stateOf(b []byte) uint8 {
	for _, protocol := range []uint16{ctaProtoInfoTCP, ctaProtoInfoSCTP} {
		if data := nfnetlink.Attr(nfnetlink.Attr(b, protocol), ctaState); data != nil {
			return nfnetlink.Uint8(data)
		}
	}
	return 0
}

// setTuple decodes CTA_TUPLE_ORIG or CTA_TUPLE_REPLY. A zone within a tuple
// applies to that direction only.
func (f *trackedFlow) setTuple(t *tuple, direction zoneDirection, b []byte) {
	var src, dst netip.Addr
	var srcPort, dstPort uint16
	nfnetlink.EachAttr(b, func(kind uint16, data []byte) {
		switch kind {
		case ctaTupleIP:
			nfnetlink.EachAttr(data, func(kind uint16, data []byte) {
				switch kind {
				case ctaIPv4Src, ctaIPv6Src:
					src, _ = netip.AddrFromSlice(data)
				case ctaIPv4Dst, ctaIPv6Dst:
					dst, _ = netip.AddrFromSlice(data)
				}
			})
		case ctaTupleProto:
			nfnetlink.EachAttr(data, func(kind uint16, data []byte) {
				switch kind {
				case ctaProtoNum:
					f.protocol = nfnetlink.Uint8(data)
				case ctaProtoSrcPort:
					srcPort = nfnetlink.Uint16(data)
				case ctaProtoDstPort:
					dstPort = nfnetlink.Uint16(data)
				}
			})
		case ctaTupleZone:
			f.zone = zone{nfnetlink.Uint16(data), direction}
		}
	})
	t.src, t.dst = netip.AddrPortFrom(src, srcPort), netip.AddrPortFrom(dst, dstPort)
}
