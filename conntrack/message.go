package conntrack

import (
	"log/slog"

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

// describe returns the type of a message of ctnetlink, for the log of messages.
func describe(msg nfnetlink.Message) (typ string, objects []slog.Attr) {
	return map[uint16]string{
		messageNew: "IPCTNL_MSG_CT_NEW", messageGet: "IPCTNL_MSG_CT_GET", messageDelete: "IPCTNL_MSG_CT_DELETE",
		messageGetStats: "IPCTNL_MSG_CT_GET_STATS",
	}[msg.Type()], nil
}

// Attributes of a flow (enum ctattr_type).
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25
	ctaStatusMask = 26
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

// writeTuple writes a complete tuple. Zone 0 is the default and needs no
// attribute.
func writeTuple(w *nfnetlink.Writer, kind uint16, protocol uint8, t tuple, zoneID uint16) {
	nest := w.Nest(kind)
	ip := w.Nest(ctaTupleIP)
	w.Addr(ctaIPv4Src, ctaIPv6Src, t.src.Addr())
	w.Addr(ctaIPv4Dst, ctaIPv6Dst, t.dst.Addr())
	w.Unnest(ip)
	proto := w.Nest(ctaTupleProto)
	w.Uint8(ctaProtoNum, protocol)
	w.Uint16(ctaProtoSrcPort, t.src.Port())
	w.Uint16(ctaProtoDstPort, t.dst.Port())
	w.Unnest(proto)
	if zoneID != 0 {
		w.Uint16(ctaTupleZone, zoneID)
	}
	w.Unnest(nest)
}
