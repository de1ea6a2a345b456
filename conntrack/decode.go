package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

var (
	errBadAttr = errors.New("attribute of unexpected length")
	errNoTuple = errors.New("flow without addresses")
)

// decodeFlow decodes the payload of an IPCTNL_MSG_CT_NEW message, of which
// dumps consist. It ignores unknown attributes and does not keep b.
func decodeFlow(b []byte) (trackedFlow, error) {
	if len(b) < genHeaderLen {
		return trackedFlow{}, errTruncated
	}
	var f trackedFlow
	for attrs := b[genHeaderLen:]; len(attrs) > 0; {
		kind, data, rest, err := nextAttr(attrs)
		if err != nil {
			return trackedFlow{}, err
		}
		if err := f.setAttr(kind, data); err != nil {
			return trackedFlow{}, fmt.Errorf("flow attribute %d: %w", kind, err)
		}
		attrs = rest
	}
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

func (f *trackedFlow) setAttr(kind uint16, data []byte) (err error) {
	switch kind {
	case ctaTupleOrig:
		return f.setTuple(&f.original, zoneOriginal, data)
	case ctaTupleReply:
		return f.setTuple(&f.reply, zoneReply, data)
	case ctaID:
		f.id, err = uint32Attr(data)
	case ctaZone:
		f.zone.direction = zoneBoth
		f.zone.id, err = uint16Attr(data)
	case ctaProtoInfo:
		f.state, err = stateAttr(data)
	}
	return err
}

// stateAttr decodes the state in CTA_PROTOINFO. It is 0 for protocols without
// states.
func stateAttr(b []byte) (state uint8, err error) {
	for _, protocol := range []uint16{ctaProtoInfoTCP, ctaProtoInfoSCTP} {
		if data := nfnetlink.Attr(nfnetlink.Attr(b, protocol), ctaState); data != nil {
			return uint8Attr(data)
		}
	}
	return 0, nil
}

// setTuple decodes CTA_TUPLE_ORIG or CTA_TUPLE_REPLY. A zone within a tuple
// applies to that direction only.
func (f *trackedFlow) setTuple(t *tuple, direction zoneDirection, b []byte) error {
	var src, dst netip.Addr
	var srcPort, dstPort uint16
	for len(b) > 0 {
		kind, data, rest, err := nextAttr(b)
		if err != nil {
			return err
		}
		switch kind {
		case ctaTupleIP:
			src, dst, err = decodeAddrs(data)
		case ctaTupleProto:
			f.protocol, srcPort, dstPort, err = decodeProto(data)
		case ctaTupleZone:
			f.zone.direction = direction
			f.zone.id, err = uint16Attr(data)
		}
		if err != nil {
			return err
		}
		b = rest
	}
	t.src, t.dst = netip.AddrPortFrom(src, srcPort), netip.AddrPortFrom(dst, dstPort)
	return nil
}

func decodeAddrs(b []byte) (src, dst netip.Addr, err error) {
	for len(b) > 0 {
		kind, data, rest, err := nextAttr(b)
		if err != nil {
			return src, dst, err
		}
		switch kind {
		case ctaIPv4Src, ctaIPv6Src:
			src, err = addrAttr(kind == ctaIPv4Src, data)
		case ctaIPv4Dst, ctaIPv6Dst:
			dst, err = addrAttr(kind == ctaIPv4Dst, data)
		}
		if err != nil {
			return src, dst, err
		}
		b = rest
	}
	return src, dst, nil
}

func decodeProto(b []byte) (protocol uint8, srcPort, dstPort uint16, err error) {
	for len(b) > 0 {
		kind, data, rest, err := nextAttr(b)
		if err != nil {
			return 0, 0, 0, err
		}
		switch kind {
		case ctaProtoNum:
			protocol, err = uint8Attr(data)
		case ctaProtoSrcPort:
			srcPort, err = uint16Attr(data)
		case ctaProtoDstPort:
			dstPort, err = uint16Attr(data)
		}
		if err != nil {
			return 0, 0, 0, err
		}
		b = rest
	}
	return protocol, srcPort, dstPort, nil
}

func addrAttr(is4 bool, b []byte) (netip.Addr, error) {
	switch {
	case is4 && len(b) == 4:
		return netip.AddrFrom4([4]byte(b)), nil
	case !is4 && len(b) == 16:
		return netip.AddrFrom16([16]byte(b)), nil
	default:
		return netip.Addr{}, errBadAttr
	}
}

func uint8Attr(b []byte) (uint8, error) {
	if len(b) != 1 {
		return 0, errBadAttr
	}
	return b[0], nil
}

func uint16Attr(b []byte) (uint16, error) {
	if len(b) != 2 {
		return 0, errBadAttr
	}
	return binary.BigEndian.Uint16(b), nil
}

func uint32Attr(b []byte) (uint32, error) {
	if len(b) != 4 {
		return 0, errBadAttr
	}
	return binary.BigEndian.Uint32(b), nil
}
