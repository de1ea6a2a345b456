package conntrack

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Message types of ctnetlink (enum cntl_msg_types in nfnetlink_conntrack.h)
// with their subsystem.
const (
	messageNew    = unix.NFNL_SUBSYS_CTNETLINK << 8   // IPCTNL_MSG_CT_NEW
	messageGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	messageDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE
)

// Attributes of a flow (enum ctattr_type).
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25
)

// Attributes within a tuple (enum ctattr_tuple, ctattr_ip, ctattr_l4proto).
const (
	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaTupleZone  = 3

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3
)

const (
	headerLen    = unix.SizeofNlMsghdr
	genHeaderLen = 4 // struct nfgenmsg
	attrLen      = unix.SizeofNlAttr
	attrTypeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

var errTruncated = errors.New("truncated netlink message")

// header is struct nlmsghdr without the length.
type header struct {
	Type, Flags uint16
	Seq         uint32
}

// nextMessage splits the first message off a buffer that the kernel filled.
func nextMessage(b []byte) (h header, payload, rest []byte, err error) {
	if len(b) < headerLen {
		return header{}, nil, nil, errTruncated
	}
	length := int(binary.NativeEndian.Uint32(b))
	if length < headerLen || length > len(b) {
		return header{}, nil, nil, errTruncated
	}
	h = header{
		Type:  binary.NativeEndian.Uint16(b[4:]),
		Flags: binary.NativeEndian.Uint16(b[6:]),
		Seq:   binary.NativeEndian.Uint32(b[8:]),
	}
	return h, b[headerLen:length], b[min(nfnetlink.Align(length), len(b)):], nil
}

// nextAttr splits the first attribute off the attributes of a message or of a
// nested attribute.
func nextAttr(b []byte) (kind uint16, data, rest []byte, err error) {
	if len(b) < attrLen {
		return 0, nil, nil, errTruncated
	}
	length := int(binary.NativeEndian.Uint16(b))
	if length < attrLen || length > len(b) {
		return 0, nil, nil, errTruncated
	}
	kind = binary.NativeEndian.Uint16(b[2:]) & attrTypeMask
	return kind, b[attrLen:length], b[min(nfnetlink.Align(length), len(b)):], nil
}

// appendMessage starts a message; endMessage ends it.
func appendMessage(b []byte, h header, family Family) []byte {
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint16(b, h.Type)
	b = binary.NativeEndian.AppendUint16(b, h.Flags)
	b = binary.NativeEndian.AppendUint32(b, h.Seq)
	b = binary.NativeEndian.AppendUint32(b, 0) // port ID: the kernel fills it in
	return append(b, byte(family), unix.NFNETLINK_V0, 0, 0)
}

func endMessage(b []byte, start int) []byte {
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
	return b
}

func appendAttr(b []byte, kind uint16, data []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrLen+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func appendUint8(b []byte, kind uint16, v uint8) []byte {
	return appendAttr(b, kind, []byte{v})
}

func appendUint16(b []byte, kind uint16, v uint16) []byte {
	return appendAttr(b, kind, []byte{byte(v >> 8), byte(v)})
}

func appendUint32(b []byte, kind uint16, v uint32) []byte {
	return appendAttr(b, kind, []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// appendAddr appends an address, with the attribute kind of its family.
func appendAddr(b []byte, kind4, kind6 uint16, addr netip.Addr) []byte {
	if addr.Is4() {
		a := addr.As4()
		return appendAttr(b, kind4, a[:])
	}
	a := addr.As16()
	return appendAttr(b, kind6, a[:])
}

// openNest starts a nested attribute; closeNest ends it.
func openNest(b []byte, kind uint16) (out []byte, start int) {
	return appendAttr(b, kind|unix.NLA_F_NESTED, nil), len(b)
}

func closeNest(b []byte, start int) []byte {
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
	return b
}

// appendTuple appends a complete tuple. Zone 0 is the default and needs no
// attribute.
func appendTuple(b []byte, kind uint16, protocol uint8, t tuple, zoneID uint16) []byte {
	b, nest := openNest(b, kind)
	b, ip := openNest(b, ctaTupleIP)
	b = appendAddr(b, ctaIPv4Src, ctaIPv6Src, t.src.Addr())
	b = appendAddr(b, ctaIPv4Dst, ctaIPv6Dst, t.dst.Addr())
	b = closeNest(b, ip)
	b, proto := openNest(b, ctaTupleProto)
	b = appendUint8(b, ctaProtoNum, protocol)
	b = appendUint16(b, ctaProtoSrcPort, t.src.Port())
	b = appendUint16(b, ctaProtoDstPort, t.dst.Port())
	b = closeNest(b, proto)
	if zoneID != 0 {
		b = appendUint16(b, ctaTupleZone, zoneID)
	}
	return closeNest(b, nest)
}
