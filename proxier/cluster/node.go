package cluster

import (
	"net/netip"
	"slices"
)

// Node describes the node that the proxy runs on.
type Node struct {
	// Name is the name by which endpoints and hints refer to this node.
	Name string
	// Zone is the node's zone (label topology.kubernetes.io/zone), "" if it has
	// none.
	Zone string
	// IPs are the node's primary addresses, at most one per family.
	IPs []netip.Addr
	// PodCIDRs are the address ranges of this node's pods.
	PodCIDRs []netip.Prefix
	// ServiceCIDRs are the ranges that ClusterIPs are allocated from.
	ServiceCIDRs []netip.Prefix
	// NodePortIPs are the local addresses within the CIDRs of
	// nodePortAddresses. They are used only if such CIDRs are configured.
	NodePortIPs []netip.Addr
	// LocalIPs are the addresses of the node, without link-local addresses,
	// which a Service cannot have.
	LocalIPs []netip.Addr
}

// Equal reports whether two nodes are the same in all fields.
func (n *Node) Equal(o *Node) bool {
	return n.Name == o.Name && n.Zone == o.Zone && slices.Equal(n.IPs, o.IPs) &&
		slices.Equal(n.PodCIDRs, o.PodCIDRs) && slices.Equal(n.ServiceCIDRs, o.ServiceCIDRs) &&
		slices.Equal(n.NodePortIPs, o.NodePortIPs) && slices.Equal(n.LocalIPs, o.LocalIPs)
}

// IsServiceAddr reports whether an address is in a service CIDR. Such an
// address cannot be an endpoint: a packet that was translated to a ClusterIP is
// not translated again.
func (n *Node) IsServiceAddr(addr netip.Addr) bool {
	return slices.ContainsFunc(n.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
}
