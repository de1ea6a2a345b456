package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// The addresses: all but those of Services are in stage.ClusterCIDR, and none is in lab.PodRanges.
var (
	serviceRange  = lab.ServiceRanges()[0]
	endpointRange = netip.MustParsePrefix("10.128.0.0/10") // all of them are the server's
	nodeClients   = netip.MustParsePrefix("10.208.0.0/13") // all of them are the node's
	podClients    = netip.MustParsePrefix("10.216.0.0/13") // all of them are the pod's
	clients       = netip.MustParsePrefix("10.208.0.0/12") // both
)

// place is a node with a pod and a server.
type place struct {
	name              string
	node, pod, server *lab.Namespace
}

// newPlace makes a pod and a server for a node.
func newPlace(s *stage.Stage, node *lab.Pod) (*place, error) {
	pod, err := s.Lab.Node2.AddPod(node.Name + "-pod")
	if err != nil {
		return nil, err
	}
	server, err := s.Lab.Node2.AddPod(node.Name + "-server")
	if err != nil {
		return nil, err
	}
	p := &place{name: node.Name, node: node.Namespace, pod: pod.Namespace, server: server.Namespace}
	if err := p.lay(); err != nil {
		return nil, fmt.Errorf("wires of %s: %w", node.Name, err)
	}
	return p, nil
}

// lay connects the three namespaces.
func (p *place) lay() error {
	if err := p.node.SetSysctl("net.ipv4.ip_forward", "1"); err != nil {
		return err
	}
	toServer, fromServer, err := wire(p.node, "to-server", p.server, "to-node")
	if err != nil {
		return err
	}
	toPod, fromPod, err := wire(p.node, "to-pod", p.pod, "to-node")
	if err != nil {
		return err
	}
	return errors.Join(
		p.server.Do(func() error { return own(endpointRange) }),
		p.node.Do(func() error { return own(nodeClients) }),
		p.pod.Do(func() error { return own(podClients) }),
		toServer.route(p.node, endpointRange), toServer.route(p.node, serviceRange), toPod.route(p.node, podClients),
		fromServer.route(p.server, clients),
		fromPod.route(p.pod, endpointRange), fromPod.route(p.pod, serviceRange),
	)
}

// plug is an end of a wire, and the hardware address of the other.
type plug struct {
	index int
	other net.HardwareAddr
}

// wire lays a veth pair.
func wire(a *lab.Namespace, nameA string, b *lab.Namespace, nameB string) (plug, plug, error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = nameA
	veth := netlink.NewVeth(attributes)
	veth.PeerName, veth.PeerNamespace = nameB, netlink.NsFd(b.Fd())
	if err := a.Do(func() error { return netlink.LinkAdd(veth) }); err != nil {
		return plug{}, plug{}, fmt.Errorf("veth %s: %w", nameA, err)
	}
	linkA, errA := setUp(a, nameA)
	linkB, errB := setUp(b, nameB)
	if err := errors.Join(errA, errB); err != nil {
		return plug{}, plug{}, err
	}
	return plug{linkA.Index, linkB.HardwareAddr}, plug{linkB.Index, linkA.HardwareAddr}, nil
}

func setUp(at *lab.Namespace, name string) (*netlink.LinkAttrs, error) {
	handle, err := netlink.NewHandleAt(netns.NsHandle(at.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	link, err := handle.LinkByName(name)
	if err != nil {
		return nil, err
	}
	if err := handle.LinkSetUp(link); err != nil {
		return nil, err
	}
	return link.Attrs(), nil
}

// own makes all addresses of a range those of this namespace.
func own(all netip.Prefix) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{
		Dst: ipNet(all), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST, LinkIndex: lo.Attrs().Index,
	})
}

// route sends packets for a range to the other end, whose hardware address need not be asked for.
func (p plug) route(at *lab.Namespace, to netip.Prefix) error {
	gateway := net.IP{169, 254, 1, 1} // stands for the other end, which need not have it
	return at.Do(func() error {
		err := netlink.NeighSet(&netlink.Neigh{LinkIndex: p.index, IP: gateway, HardwareAddr: p.other, State: unix.NUD_PERMANENT})
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{Dst: ipNet(to), Gw: gateway, LinkIndex: p.index, Flags: int(netlink.FLAG_ONLINK)})
	})
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
