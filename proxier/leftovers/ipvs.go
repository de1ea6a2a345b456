package leftovers

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ipvsInterface is the interface with the service addresses of the IPVS mode.
const ipvsInterface = "kube-ipvs0"

// ipvs removes kube-proxy's virtual servers and its interface. Without the
// interface it removes nothing: all virtual servers belong to other programs.
func (r *removal) ipvs() error {
	link, err := netlink.LinkByName(ipvsInterface)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
		return nil
	case err != nil:
		return fmt.Errorf("find interface %s: %w", ipvsInterface, err)
	case r.findOnly:
		r.addRemoved("interface " + ipvsInterface)
		return nil
	}
	leftovers, err := findLeftoverServers(link)
	if err != nil {
		return fmt.Errorf("find virtual servers of interface %s: %w", ipvsInterface, err)
	}
	n, err := removeServers(leftovers)
	if n > 0 {
		r.addRemoved("IPVS: " + count(n, "virtual server"))
	}
	if err != nil { // keep the interface, which identifies the virtual servers
		return err
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("delete interface %s: %w", ipvsInterface, err)
	}
	r.addRemoved("interface " + ipvsInterface)
	return nil
}

// leftoverServers identifies kube-proxy's virtual servers. The address of
// such a server is on kube-proxy's interface, or its port is in the IP sets
// of node ports.
type leftoverServers struct {
	addrs     map[netip.Addr]bool
	nodePorts map[nodePort]bool
}

type nodePort struct {
	protocol uint16
	port     uint16
}

func (l leftoverServers) contains(s virtualServer) bool {
	return s.mark == 0 && (l.addrs[s.addr] || l.nodePorts[nodePort{s.protocol, s.port}])
}

// nodePortSets are the IPv4 IP sets of all node ports, with their protocols.
var nodePortSets = map[string]uint16{
	"KUBE-NODE-PORT-TCP":       unix.IPPROTO_TCP,
	"KUBE-NODE-PORT-UDP":       unix.IPPROTO_UDP,
	"KUBE-NODE-PORT-SCTP-HASH": unix.IPPROTO_SCTP,
}

func findLeftoverServers(link netlink.Link) (leftoverServers, error) {
	l := leftoverServers{addrs: make(map[netip.Addr]bool), nodePorts: make(map[nodePort]bool)}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return l, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			l.addrs[addr.Unmap()] = true
		}
	}
	sets, err := leftoverSets()
	if err != nil {
		return l, err
	}
	for name, protocol := range nodePortSets {
		for _, name := range []string{name, setNameIPv6(name)} {
			if !slices.Contains(sets, name) {
				continue
			}
			ports, err := portsInSet(name)
			if err != nil {
				return l, fmt.Errorf("list IP set %s: %w", name, err)
			}
			for _, port := range ports {
				l.nodePorts[nodePort{protocol, port}] = true
			}
		}
	}
	return l, nil
}

// removeServers deletes virtual servers and returns their number. It is 0 on
// a kernel without IPVS.
func removeServers(leftovers leftoverServers) (n int, err error) {
	family, err := netlink.GenlFamilyGet("IPVS")
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find IPVS: %w", err)
	}
	servers, err := listServers(int(family.ID))
	if err != nil {
		return 0, fmt.Errorf("list virtual servers: %w", err)
	}
	for _, s := range servers {
		if !leftovers.contains(s) {
			continue
		}
		if err := deleteServer(int(family.ID), s); err != nil && !errors.Is(err, unix.ESRCH) {
			return n, fmt.Errorf("delete virtual server %s: %w", s, err)
		}
		n++
	}
	return n, nil
}
