package proxier

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// nodeTracker combines what is known about this node: from its Node object,
// from ServiceCIDRs, and from its interfaces.
type nodeTracker struct {
	config *Config

	// eligible reports whether load balancers may send traffic to this node.
	eligible atomic.Bool

	mu   sync.Mutex // guards node
	node cluster.Node
}

func newNodeTracker(config *Config) *nodeTracker {
	t := &nodeTracker{config: config, node: cluster.Node{Name: config.NodeName, IPs: config.NodeIPs}}
	t.eligible.Store(config.NodeOptional)
	return t
}

// current returns the present state of the node.
func (t *nodeTracker) current() *cluster.Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.node
	return &n
}

// change changes the state of the node, and reports whether anything changes.
func (t *nodeTracker) change(f func(*cluster.Node)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.node
	f(&n)
	changed := !n.Equal(&t.node)
	t.node = n
	return changed
}

// setObject takes the fields of the Node object, nil if there is none. If the
// object was deleted, or has no address or pod CIDR of a family, the known ones
// of the family stay: the machine is the same. It reports whether anything
// changes.
func (t *nodeTracker) setObject(obj *corev1.Node) bool {
	t.eligible.Store(translate.NodeEligible(obj))
	if obj == nil {
		return false
	}
	return t.change(func(n *cluster.Node) {
		n.Zone = obj.Labels[corev1.LabelTopologyZone]
		n.PodCIDRs = firstOfFamilies(netip.Prefix.Addr, translate.PodCIDRs(obj), n.PodCIDRs)
		self := func(ip netip.Addr) netip.Addr { return ip }
		n.IPs = firstOfFamilies(self, t.config.NodeIPs, translate.NodeIPs(obj), n.IPs)
	})
}

// firstOfFamilies returns, for each address family, its values from the first
// list that contains any. addr returns the address of a value.
func firstOfFamilies[T any](addr func(T) netip.Addr, lists ...[]T) (out []T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		before := len(out)
		for _, list := range lists {
			for _, value := range list {
				if f.Of(addr(value)) {
					out = append(out, value)
				}
			}
			if len(out) > before {
				break
			}
		}
	}
	return out
}

// logMissing logs what is not known about this node, and the consequences.
func (t *nodeTracker) logMissing() {
	n := t.current()
	node := klog.KRef("", n.Name)
	switch ports := t.config.Rules.NodePortAddresses; {
	case len(n.IPs) > 0:
	case len(ports.CIDRs) == 0:
		klog.InfoS("No address of this node is known; NodePorts listen on all local addresses", "node", node)
	case ports.Primary:
		klog.InfoS("No address of this node is known; NodePorts do not listen on a primary address. "+
			"Add a Node object with an address, or set bindAddress", "node", node)
	}
	if len(n.PodCIDRs) == 0 && t.config.Rules.DetectLocal.Mode == ruleset.DetectLocalNodeCIDR {
		klog.InfoS("No pod CIDR of this node is known; traffic of pods is not recognized", "node", node)
	}
	for _, gap := range t.config.familyGaps(n) {
		klog.InfoS("Incomplete configuration", "node", node, "problem", gap)
	}
}

// familyGaps returns a sentence for each address family of a node that the
// configuration or the Node object does not cover.
func (c *Config) familyGaps(n *cluster.Node) (gaps []string) {
	byCIDR := c.Rules.DetectLocal.Mode == ruleset.DetectLocalClusterCIDR
	if byCIDR && len(c.Rules.DetectLocal.ClusterCIDRs) == 0 && !c.NodeOptional { // a plain machine has no pods
		gaps = append(gaps, "no clusterCIDR is configured: traffic of pods is not recognized, "+
			"and traffic from outside to ClusterIPs is not masqueraded")
	}
	covers := func(cidrs []netip.Prefix, f nft.Family) bool {
		return len(cidrs) == 0 || len(f.Prefixes(cidrs)) > 0
	}
	for _, ip := range n.IPs {
		f := nft.FamilyOf(ip)
		gap := func(format string) { gaps = append(gaps, fmt.Sprintf(format, f.Name())) }
		if byCIDR && !covers(c.Rules.DetectLocal.ClusterCIDRs, f) {
			gap("this node has %[1]s addresses, but clusterCIDR does not: %[1]s traffic of pods is not recognized")
		}
		if c.Rules.DetectLocal.Mode == ruleset.DetectLocalNodeCIDR && !covers(n.PodCIDRs, f) {
			gap("this node has %[1]s addresses, but no %[1]s pod CIDR: %[1]s traffic of pods is not recognized")
		}
		if !c.Rules.NodePortAddresses.Covers(f) {
			gap("nodePortAddresses has no %[1]s CIDR: NodePorts listen on all local %[1]s addresses")
		}
	}
	return gaps
}
