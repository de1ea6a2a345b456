package leftovers

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ipvsInterface is the interface that holds the addresses that kube-proxy's IPVS mode serves.
const ipvsInterface = "kube-ipvs0"

// removeIPVS removes kube-proxy's virtual servers and its interface. Without that interface the IPVS mode was not here, and nothing is
// removed: others use IPVS, too.
func removeIPVS(report *Report) error {
	link, err := netlink.LinkByName(ipvsInterface)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find interface %s: %w", ipvsInterface, err)
	}
	owned, err := ownedServers(link)
	if err != nil {
		return fmt.Errorf("find what interface %s serves: %w", ipvsInterface, err)
	}
	n, err := removeServers(owned)
	if n > 0 {
		report.removed("IPVS: " + count(n, "virtual server"))
	}
	if err != nil { // the interface stays, for it tells the next time whose they are
		return err
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("delete interface %s: %w", ipvsInterface, err)
	}
	report.removed("interface " + ipvsInterface)
	return nil
}

// serverOwner tells kube-proxy's virtual servers from those of others: their address is on its interface, or they are for a NodePort, in which
// case their port is in its IP sets.
type serverOwner struct {
	addrs     map[netip.Addr]bool
	nodePorts map[nodePort]bool
}

type nodePort struct {
	protocol uint16
	port     uint16
}

func (o serverOwner) owns(s virtualServer) bool {
	return s.mark == 0 && (o.addrs[s.addr] || o.nodePorts[nodePort{s.protocol, s.port}])
}

// nodePortSets are the IP sets that list all NodePorts.
var nodePortSets = map[string]uint16{
	"KUBE-NODE-PORT-TCP":       unix.IPPROTO_TCP,
	"KUBE-NODE-PORT-UDP":       unix.IPPROTO_UDP,
	"KUBE-NODE-PORT-SCTP-HASH": unix.IPPROTO_SCTP,
}

func ownedServers(link netlink.Link) (serverOwner, error) {
	o := serverOwner{addrs: make(map[netip.Addr]bool), nodePorts: make(map[nodePort]bool)}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return o, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			o.addrs[addr.Unmap()] = true
		}
	}
	sets, err := listSets()
	if err != nil {
		return o, fmt.Errorf("list IP sets: %w", err)
	}
	for _, name := range sets {
		protocol, ok := nodePortSet(name)
		if !ok {
			continue
		}
		ports, err := portsInSet(name)
		if err != nil {
			return o, fmt.Errorf("list IP set %s: %w", name, err)
		}
		for _, port := range ports {
			o.nodePorts[nodePort{protocol, port}] = true
		}
	}
	return o, nil
}

// nodePortSet returns the protocol of whose NodePorts the IP set of that name is.
func nodePortSet(name string) (protocol uint16, ok bool) {
	for ipv4, protocol := range nodePortSets {
		if name == ipv4 || name == setNameIPv6(ipv4) {
			return protocol, true
		}
	}
	return 0, false
}

// removeServers deletes the virtual servers that are owned, and returns how many there were; none on a kernel without IPVS.
func removeServers(owner serverOwner) (n int, err error) {
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
		if !owner.owns(s) {
			continue
		}
		if err := deleteServer(int(family.ID), s); err != nil && !errors.Is(err, unix.ESRCH) {
			return n, fmt.Errorf("delete virtual server %s: %w", s, err)
		}
		n++
	}
	return n, nil
}
