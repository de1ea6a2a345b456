package leftovers

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Constants of include/uapi/linux/ip_vs.h.
const (
	ipvsVersion       = 1
	ipvsDeleteService = 3
	ipvsGetService    = 4

	ipvsAttrService = 1

	ipvsServiceFamily   = 1
	ipvsServiceProtocol = 2
	ipvsServiceAddr     = 3
	ipvsServicePort     = 4
	ipvsServiceMark     = 5
)

// virtualServer is a virtual server of IPVS.
type virtualServer struct {
	protocol uint16 // IPPROTO_*
	addr     netip.Addr
	port     uint16
	mark     uint32 // if not 0, it selects packets by mark, and the fields above mean nothing
}

// String returns "10.96.0.1:443 protocol 6".
func (s virtualServer) String() string {
	return fmt.Sprintf("%s protocol %d", netip.AddrPortFrom(s.addr, s.port), s.protocol)
}

func listServers(genl int) ([]virtualServer, error) {
	req := nl.NewNetlinkRequest(genl, unix.NLM_F_DUMP)
	req.AddData(&nl.Genlmsg{Command: ipvsGetService, Version: ipvsVersion})
	messages, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	servers := make([]virtualServer, 0, len(messages))
	for _, msg := range messages {
		servers = append(servers, decodeServer(msg))
	}
	return servers, nil
}

// decodeServer decodes a message without its netlink header. Attributes that
// are missing are zero.
func decodeServer(msg []byte) virtualServer {
	service := nfnetlink.Attr(attributesOf(msg, nl.SizeofGenlmsg), ipvsAttrService)
	field := func(typ uint16, size int) []byte {
		value := make([]byte, size)
		copy(value, nfnetlink.Attr(service, typ))
		return value
	}
	s := virtualServer{
		protocol: binary.NativeEndian.Uint16(field(ipvsServiceProtocol, 2)),
		addr:     netip.AddrFrom16([16]byte(field(ipvsServiceAddr, 16))),
		port:     binary.BigEndian.Uint16(field(ipvsServicePort, 2)),
		mark:     binary.NativeEndian.Uint32(field(ipvsServiceMark, 4)),
	}
	if binary.NativeEndian.Uint16(field(ipvsServiceFamily, 2)) == unix.AF_INET {
		s.addr = netip.AddrFrom4([4]byte(field(ipvsServiceAddr, 4)))
	}
	return s
}

func deleteServer(genl int, s virtualServer) error {
	req := nl.NewNetlinkRequest(genl, unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: ipvsDeleteService, Version: ipvsVersion})
	req.AddData(encodeServer(s))
	_, err := req.Execute(unix.NETLINK_GENERIC, 0)
	return err
}

// encodeServer returns the attribute that identifies a virtual server.
func encodeServer(s virtualServer) *nl.RtAttr {
	service := nl.NewRtAttr(ipvsAttrService|unix.NLA_F_NESTED, nil)
	service.AddRtAttr(ipvsServiceFamily, nl.Uint16Attr(uint16(nl.GetIPFamily(s.addr.AsSlice()))))
	service.AddRtAttr(ipvsServiceProtocol, nl.Uint16Attr(s.protocol))
	addr := make([]byte, 16)
	copy(addr, s.addr.AsSlice())
	service.AddRtAttr(ipvsServiceAddr, addr)
	service.AddRtAttr(ipvsServicePort, nl.BEUint16Attr(s.port))
	return service
}
