package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// subject is one instance of a variant: a place whose node has its rules.
type subject struct {
	variant  variant
	instance int
	place    *place
	targets  targets
	fresh    int // new clients so far
}

// targets are the addresses to which clients connect.
type targets struct{ tcp, udp, affinity netip.AddrPort }

// frontends returns the addresses of the Services. The TCP Service is one of
// many, in the middle.
func frontends(services int) targets {
	return targets{stage.Frontend(services / 2), stage.Frontend(udpService), stage.Frontend(affinityService)}
}

// firstEndpoints returns an endpoint of each Service without affinity.
func firstEndpoints(services int) targets {
	first := func(service int) netip.AddrPort {
		return netip.AddrPortFrom(stage.Endpoints(service, endpoints)[0], stage.TargetPort)
	}
	return targets{tcp: first(services / 2), udp: first(udpService)}
}

func (s *subject) proxied() bool { return s.variant.services > 0 }

// knownClients is the number of clients with an endpoint of the Service with
// session affinity.
const knownClients = 64

// introduce connects the known clients.
func (s *subject) introduce() error {
	for _, path := range []string{fromNode, fromPod} {
		if !s.proxied() {
			continue
		}
		if _, err := s.task(scenario{path, knownClient}, knownClients).latencies(knownClients); err != nil {
			return err
		}
	}
	return nil
}

// task returns the task of a measurement. New clients make at most that many
// connections.
func (s *subject) task(c scenario, connections int) *task {
	t := &task{
		kind: unix.SOCK_STREAM, established: c.established(),
		from: s.place.node, to: s.targets.tcp, server: s.place.server, node: s.place.node,
	}
	all := nodeClients
	if c.path == fromPod {
		t.from, all = s.place.pod, podClients
	}
	first, n := 1, 1
	switch c.traffic {
	case newUDP, establishedUDP:
		t.kind, t.to = unix.SOCK_DGRAM, s.targets.udp
	case knownClient:
		t.to, n = s.targets.affinity, knownClients
	case unknownClient:
		t.to, first, n = s.targets.affinity, 1+knownClients+s.fresh, connections
		s.fresh += connections
	}
	for i := range n {
		t.sources = append(t.sources, stage.Nth(all.Addr(), first+i))
	}
	return t
}

// The ranges of addresses. All but the one of Services are in
// stage.ClusterCIDR, and none is in lab.PodRanges.
var (
	serviceRange  = lab.ServiceRanges()[0]
	endpointRange = netip.MustParsePrefix("10.128.0.0/10") // of the server
	nodeClients   = netip.MustParsePrefix("10.208.0.0/13") // of the node
	podClients    = netip.MustParsePrefix("10.216.0.0/13") // of the pod
	clients       = netip.MustParsePrefix("10.208.0.0/12") // of both
)

// place is a node with a pod and a server.
type place struct{ node, pod, server *lab.Namespace }

// newPlace adds a pod and a server to a node, and connects the three.
func newPlace(l *lab.Lab, node *lab.Pod) (*place, error) {
	pod, err := l.Node2.AddPod(node.Name + "-pod")
	if err != nil {
		return nil, err
	}
	server, err := l.Node2.AddPod(node.Name + "-server")
	if err != nil {
		return nil, err
	}
	p := &place{node: node.Namespace, pod: pod.Namespace, server: server.Namespace}
	err = errors.Join(
		p.node.SetSysctl("net.ipv4.ip_forward", "1"),
		own(p.server, endpointRange), own(p.node, nodeClients), own(p.pod, podClients),
		connect(p.node, p.server, "server", []netip.Prefix{endpointRange, serviceRange}, []netip.Prefix{clients}),
		connect(p.node, p.pod, "pod", []netip.Prefix{podClients}, []netip.Prefix{endpointRange, serviceRange}))
	if err != nil {
		return nil, fmt.Errorf("links of %s: %w", node.Name, err)
	}
	return p, nil
}

// own makes all addresses of a range local to a namespace.
func own(at *lab.Namespace, all netip.Prefix) error {
	return at.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			Dst: ipNet(all), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST,
			LinkIndex: lo.Attrs().Index,
		})
	})
}

// connect connects the node with a peer through a veth pair, and adds routes in
// both directions.
func connect(node, peer *lab.Namespace, name string, toPeer, toNode []netip.Prefix) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "to-" + name
	veth := netlink.NewVeth(attributes)
	veth.PeerName, veth.PeerNamespace = "to-node", netlink.NsFd(peer.Fd())
	if err := node.Do(func() error { return netlink.LinkAdd(veth) }); err != nil {
		return fmt.Errorf("veth %s: %w", attributes.Name, err)
	}
	near, errNear := setUp(node, attributes.Name)
	far, errFar := setUp(peer, veth.PeerName)
	if err := errors.Join(errNear, errFar); err != nil {
		return err
	}
	return errors.Join(
		node.Do(func() error { return route(near.Index, far.HardwareAddr, toPeer) }),
		peer.Do(func() error { return route(far.Index, near.HardwareAddr, toNode) }))
}

func setUp(at *lab.Namespace, name string) (attributes *netlink.LinkAttrs, err error) {
	err = at.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		attributes = link.Attrs()
		return netlink.LinkSetUp(link)
	})
	return attributes, err
}

// route adds routes to the other end of a link, with a permanent neighbour so
// that no packet waits for ARP.
func route(link int, other net.HardwareAddr, ranges []netip.Prefix) error {
	gateway := net.IP{169, 254, 1, 1} // the other end need not have this address
	neighbour := &netlink.Neigh{LinkIndex: link, IP: gateway, HardwareAddr: other, State: unix.NUD_PERMANENT}
	if err := netlink.NeighSet(neighbour); err != nil {
		return err
	}
	for _, to := range ranges {
		route := &netlink.Route{Dst: ipNet(to), Gw: gateway, LinkIndex: link, Flags: int(netlink.FLAG_ONLINK)}
		if err := netlink.RouteReplace(route); err != nil {
			return err
		}
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
