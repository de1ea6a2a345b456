package translate

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/nft"
)

// TaintToBeDeleted is the taint that the cluster autoscaler adds to a node
// before it deletes the node.
const TaintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NodeEligible reports whether load balancers may send traffic to a node: the
// Node object exists and is not about to be deleted (KEP-3836). nil stands for
// an object that does not exist.
func NodeEligible(node *corev1.Node) bool {
	return node != nil && node.DeletionTimestamp.IsZero() &&
		!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == TaintToBeDeleted })
}

// NodeIPs returns the primary addresses of a node, at most one per family: the
// first InternalIP, or else the first ExternalIP.
func NodeIPs(node *corev1.Node) []netip.Addr {
	var ips []netip.Addr
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		for _, typ := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
			if ip, ok := firstAddr(node.Status.Addresses, f, typ); ok {
				ips = append(ips, ip)
				break
			}
		}
	}
	return ips
}

func firstAddr(addresses []corev1.NodeAddress, f nft.Family, typ corev1.NodeAddressType) (netip.Addr, bool) {
	for _, a := range addresses {
		if ip, ok := ParseAddr(a.Address); ok && a.Type == typ && f.Of(ip) {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// PodCIDRs returns the valid pod CIDRs of a node.
func PodCIDRs(node *corev1.Node) []netip.Prefix {
	values := node.Spec.PodCIDRs
	if len(values) == 0 && node.Spec.PodCIDR != "" {
		values = []string{node.Spec.PodCIDR}
	}
	return Prefixes(values)
}
