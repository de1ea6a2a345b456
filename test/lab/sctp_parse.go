package lab

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// parseSCTP reads an IPv4 or IPv6 packet, from its network header on. It is not
// ok for packets that are no SCTPEvent. Neither fragments nor IPv6 extension
// headers are understood.
func parseSCTP(packet []byte) (parsed SCTPPacket, ok bool) {
	ip, ok := parseIP(packet)
	if !ok {
		return SCTPPacket{}, false
	}
	switch ip.protocol {
	case unix.IPPROTO_SCTP:
		return parseChunk(ip)
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return parsePortUnreachable(ip)
	}
	return SCTPPacket{}, false
}

// ipPacket is what parseIP finds.
type ipPacket struct {
	source, destination netip.Addr
	protocol            int
	payload             []byte // may be cut short
}

func parseIP(packet []byte) (ipPacket, bool) {
	const headerLen4, headerLen6 = 20, 40
	switch {
	case len(packet) >= headerLen4 && packet[0]>>4 == 4:
		headerLen, totalLen := int(packet[0]&0xf)*4, int(binary.BigEndian.Uint16(packet[2:]))
		if headerLen < headerLen4 || headerLen > len(packet) || totalLen < headerLen {
			return ipPacket{}, false
		}
		return ipPacket{
			source:      netip.AddrFrom4([4]byte(packet[12:16])),
			destination: netip.AddrFrom4([4]byte(packet[16:20])),
			protocol:    int(packet[9]),
			payload:     packet[headerLen:min(totalLen, len(packet))],
		}, true
	case len(packet) >= headerLen6 && packet[0]>>4 == 6:
		totalLen := headerLen6 + int(binary.BigEndian.Uint16(packet[4:]))
		return ipPacket{
			source:      netip.AddrFrom16([16]byte(packet[8:24])),
			destination: netip.AddrFrom16([16]byte(packet[24:40])),
			protocol:    int(packet[6]),
			payload:     packet[headerLen6:min(totalLen, len(packet))],
		}, true
	}
	return ipPacket{}, false
}

// parseChunk reads the first chunk of an SCTP packet.
func parseChunk(ip ipPacket) (SCTPPacket, bool) {
	if len(ip.payload) <= sctpHeaderLen {
		return SCTPPacket{}, false
	}
	packet := withPorts(ip)
	switch ip.payload[sctpHeaderLen] {
	case sctpInit:
		packet.Event = SCTPInit
	case sctpAbort:
		packet.Event = SCTPAbort
	default:
		return SCTPPacket{}, false
	}
	packet.ChecksumValid = binary.LittleEndian.Uint32(ip.payload[8:]) == sctpChecksum(ip.payload)
	return packet, true
}

// parsePortUnreachable reads an ICMP error that quotes an SCTP packet.
func parsePortUnreachable(ip ipPacket) (SCTPPacket, bool) {
	const headerLen, portsLen = 8, 4
	if len(ip.payload) < headerLen {
		return SCTPPacket{}, false
	}
	kind, code := ip.payload[0], ip.payload[1]
	if ip.protocol == unix.IPPROTO_ICMP && (kind != 3 || code != 3) || // RFC 792
		ip.protocol == unix.IPPROTO_ICMPV6 && (kind != 1 || code != 4) { // RFC 4443, section 3.1
		return SCTPPacket{}, false
	}
	quoted, ok := parseIP(ip.payload[headerLen:])
	if !ok || quoted.protocol != unix.IPPROTO_SCTP || len(quoted.payload) < portsLen {
		return SCTPPacket{}, false
	}
	packet := withPorts(quoted)
	packet.Event = SCTPPortUnreachable
	return packet, true
}

// withPorts takes addresses and ports from an IP packet that carries them.
func withPorts(ip ipPacket) SCTPPacket {
	return SCTPPacket{
		Source:      netip.AddrPortFrom(ip.source, binary.BigEndian.Uint16(ip.payload[0:])),
		Destination: netip.AddrPortFrom(ip.destination, binary.BigEndian.Uint16(ip.payload[2:])),
	}
}
