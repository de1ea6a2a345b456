// Package oracle computes the fate of a connection from the objects of a
// cluster, as Kubernetes documents it. It is the only description of a
// connection that tests compare a service proxy with: the rules that nftproxy
// writes (package explain), the packets of nftproxy and of kube-proxy
// (test/apiserver/differential), and the connections of Soak.
//
// It does not use the code of a proxy, except for the plain structs of package
// cluster. Each branch names its source: a field of the API (k8s.io/api), a
// Kubernetes Enhancement Proposal (KEP), a page of kubernetes.io/docs, or, if
// Kubernetes leaves the answer to the proxy, the choice of nftproxy
// (docs/packets.md).
package oracle

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Cluster is what the fate of a connection depends on: the objects, and the
// node whose proxy sees its first packet.
type Cluster struct {
	Config
	Node *cluster.Node
	// Addrs are all addresses of the node, except for loopback.
	Addrs     []netip.Addr
	Services  []*cluster.Service
	Endpoints map[cluster.ServiceName][]*cluster.Endpoint
}

// Config are fields of KubeProxyConfiguration
// (k8s.io/kube-proxy/config/v1alpha1).
type Config struct {
	// MasqueradeAll is nftables.masqueradeAll.
	MasqueradeAll bool
	// DetectLocalMode is detectLocalMode, "" for none.
	DetectLocalMode string
	// ClusterCIDRs, BridgeInterface and InterfaceNamePrefix are the parameters
	// of the modes: clusterCIDR, and the fields of detectLocal.
	ClusterCIDRs                         []netip.Prefix
	BridgeInterface, InterfaceNamePrefix string
	// NodePortCIDRs and NodePortPrimary are nodePortAddresses: CIDRs, and
	// whether "primary" is among them.
	NodePortCIDRs   []netip.Prefix
	NodePortPrimary bool
	// LocalhostNodePorts serves NodePorts on localhost (KEP-6032).
	LocalhostNodePorts bool
}

// Connection is a new connection.
type Connection struct {
	Source netip.Addr
	// Interface is the name of the interface on which the first packet arrives.
	// It has no meaning if the node itself is the source.
	Interface   string
	Destination netip.AddrPort
	Protocol    cluster.Protocol
	// Last is the endpoint of the client's last connection to the Service port,
	// if that was within the timeout of session affinity.
	Last netip.AddrPort
}

// Action is what happens to a connection.
type Action string

// Actions.
const (
	ToEndpoint Action = "endpoint" // it is translated to an endpoint
	Refused    Action = "reject"   // the client gets an error at once
	Dropped    Action = "drop"     // the client gets no answer
	NotService Action = "pass"     // it is left alone: no Service has the destination
)

// Outcome is an allowed outcome.
type Outcome struct {
	Action   Action
	Endpoint netip.AddrPort
	// Masqueraded reports whether the endpoint sees an address of the node
	// instead of the client's.
	Masqueraded bool
	// Service is the Service that has the destination, nil if none has it.
	Service *cluster.Service
	// Weight is the endpoint's share of the connections, relative to others.
	Weight int
	// Reason is the reason why the connection is masqueraded, or does not reach
	// an endpoint. It has the word of nftproxy's answers.
	Reason string
}

// IPv4 and IPv6 are separate: a Service, an endpoint or a range of one family
// says nothing about the other (KEP-563).
func sameFamily(a, b netip.Addr) bool { return a.Is4() == b.Is4() }

func anyPrefix(all []netip.Prefix, ok func(netip.Prefix) bool) bool {
	return slices.ContainsFunc(all, ok)
}

// Outcomes returns the allowed outcomes of a connection, sorted by endpoint.
func (c *Cluster) Outcomes(q Connection) []Outcome {
	to, s := q.Destination.Addr(), c.owner(q)
	switch {
	case s == nil && to.IsLoopback(), s != nil && to.IsLoopback() && q.Protocol == cluster.TCP && c.servesLocalhost(to):
		// The mode nftables has no NodePorts on localhost (virtual-ips of
		// kubernetes.io/docs/reference/networking). With KEP-6032, the proxy
		// itself listens there.
		return one(NotService, "Localhost", nil)
	case s != nil && to.IsLoopback():
		// KEP-6032: localhost serves NodePorts for TCP only. With the feature
		// gate, NodePorts that it does not serve are rejected.
		return one(Refused, "Localhost", s)
	case s != nil:
		return c.served(q, s)
	}
	switch {
	case c.isLocal(to) && !c.isLocal(q.Source):
		// A program of the node may listen there. kube-proxy handles forwarded
		// packets, and packets that the node itself sends.
		return one(NotService, "NoService", nil)
	case c.isClusterIP(to):
		// As in kube-proxy, a port that the Service does not have. The packets
		// would loop otherwise.
		return one(Refused, "UnknownPort", nil)
	case anyPrefix(c.Node.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(to) }):
		// networking.k8s.io/v1 ServiceCIDR (KEP-1880): an address that no
		// Service has. kube-proxy drops the packets, too.
		return one(Dropped, "UnallocatedAddress", nil)
	}
	return one(NotService, "NoService", nil)
}

// one returns the only outcome at a service port, or at none.
func one(action Action, reason string, s *servicePort) []Outcome {
	o := Outcome{Action: action, Reason: reason}
	if s != nil {
		o.Service = s.service
	}
	return []Outcome{o}
}

// isLocal reports whether the node has an address.
func (c *Cluster) isLocal(addr netip.Addr) bool {
	return addr.IsLoopback() || slices.Contains(c.Addrs, addr)
}

// servesLocalhost reports whether TCP NodePorts are served on the loopback
// address of a family: nodePortAddresses has a loopback range (KEP-6032).
func (c *Cluster) servesLocalhost(like netip.Addr) bool {
	return c.LocalhostNodePorts && anyPrefix(c.NodePortCIDRs, func(p netip.Prefix) bool {
		return p.Addr().IsLoopback() && sameFamily(p.Addr(), like)
	})
}

// listens reports whether NodePorts listen at an address (nodePortAddresses of
// KubeProxyConfiguration).
func (c *Cluster) listens(addr netip.Addr) bool {
	var cidrs []netip.Prefix
	for _, p := range c.NodePortCIDRs {
		if sameFamily(p.Addr(), addr) {
			cidrs = append(cidrs, p)
		}
	}
	var primary []netip.Addr
	for _, ip := range c.Node.IPs {
		// The mode nftables has "primary" by default (KEP-3866).
		if sameFamily(ip, addr) && (c.NodePortPrimary || len(c.NodePortCIDRs) == 0) {
			primary = append(primary, ip)
		}
	}
	switch {
	case addr.IsLoopback(): // or they are rejected there
		return c.LocalhostNodePorts
	case !c.isLocal(addr):
		return false
	case anyPrefix(cidrs, func(p netip.Prefix) bool { return p.Bits() == 0 }):
		return true // all addresses
	case len(cidrs) == 0 && len(primary) == 0:
		return true // kube-proxy: a family without a CIDR or a known address has NodePorts everywhere
	}
	return slices.Contains(primary, addr) || len(cidrs) > 0 && slices.Contains(c.Node.NodePortIPs, addr)
}

// has reports whether a Service has the family of an address
// (ServiceSpec.ipFamilies).
func (c *Cluster) has(svc *cluster.Service, addr netip.Addr) bool {
	return slices.Contains(svc.Families, nft.FamilyOf(addr))
}

// isClusterIP reports whether an address is the ClusterIP of a Service.
func (c *Cluster) isClusterIP(addr netip.Addr) bool {
	has := func(svc *cluster.Service) bool { return slices.Contains(svc.ClusterIPs, addr) }
	return slices.ContainsFunc(c.Services, has)
}
