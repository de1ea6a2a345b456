package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// nodeTracker puts together what is known about this node: from its Node object, from ServiceCIDRs, and from its interfaces.
type nodeTracker struct {
	config *Config

	// eligible says whether the Node object is there and stays.
	eligible atomic.Bool

	mu   sync.Mutex // guards node
	node Node
}

func newNodeTracker(config *Config) *nodeTracker {
	return &nodeTracker{config: config, node: Node{Name: config.NodeName, IPs: config.NodeIPs}}
}

// current returns what is known now.
func (t *nodeTracker) current() *Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.node
	return &n
}

// change changes what is known. It returns nil if that is what was known before.
func (t *nodeTracker) change(f func(*Node)) *Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.node
	f(&n)
	if n.equal(&t.node) {
		return nil
	}
	t.node = n
	return &n
}

// tellMissing says in the log what is not known about this node, and what becomes of that.
func (t *nodeTracker) tellMissing() {
	n := t.current()
	if len(n.IPs) == 0 && len(t.config.NodePortAddresses.CIDRs) == 0 {
		klog.InfoS("No address of this node is known: NodePorts listen on all local addresses", "node", klog.KRef("", n.Name))
	}
	if len(n.PodCIDRs) == 0 && t.config.DetectLocal.Mode == DetectLocalNodeCIDR {
		klog.InfoS("No pod CIDR of this node is known: pods are not told from other clients", "node", klog.KRef("", n.Name))
	}
	for _, gap := range t.config.familyGaps(n) {
		klog.InfoS("Configuration: " + gap)
	}
}

// familyGaps says what the configuration and the Node object leave out for the address families that a node has.
func (c *Config) familyGaps(n *Node) (gaps []string) {
	byCIDR := c.DetectLocal.Mode == DetectLocalClusterCIDR
	if byCIDR && len(c.DetectLocal.ClusterCIDRs) == 0 {
		gaps = append(gaps, "no cluster CIDR is given: pods are not told from other clients, whose traffic to ClusterIPs is not masqueraded")
	}
	has := func(cidrs []netip.Prefix, f nft.Family) bool {
		return len(cidrs) == 0 || slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return f.Of(p.Addr()) })
	}
	for _, ip := range n.IPs {
		f := nft.FamilyOf(ip)
		if byCIDR && !has(c.DetectLocal.ClusterCIDRs, f) {
			gaps = append(gaps, fmt.Sprintf("no %s cluster CIDR is given, but this node has such addresses: %[1]s pods are not told from other clients", apiFamily(f)))
		}
		if c.DetectLocal.Mode == DetectLocalNodeCIDR && !has(n.PodCIDRs, f) {
			gaps = append(gaps, fmt.Sprintf("this node has no %s pod CIDR, but such addresses: %[1]s pods are not told from other clients", apiFamily(f)))
		}
		if !has(c.NodePortAddresses.CIDRs, f) {
			gaps = append(gaps, fmt.Sprintf("nodePortAddresses has no %s address: NodePorts listen on all local %[1]s addresses", apiFamily(f)))
		}
	}
	return gaps
}

func (n *Node) equal(o *Node) bool {
	return n.Name == o.Name && n.Zone == o.Zone && slices.Equal(n.IPs, o.IPs) && slices.Equal(n.PodCIDRs, o.PodCIDRs) &&
		slices.Equal(n.ServiceCIDRs, o.ServiceCIDRs) && slices.Equal(n.NodePortIPs, o.NodePortIPs)
}

// setObject takes what the Node object says. A Node object that is gone, or new and without addresses or podCIDRs yet, says nothing about the
// machine: what was known before stays.
func (t *nodeTracker) setObject(obj *corev1.Node) *Node {
	t.eligible.Store(NodeEligible(obj))
	if obj == nil {
		return nil
	}
	return t.change(func(n *Node) {
		n.Zone = obj.Labels[corev1.LabelTopologyZone]
		if cidrs := prefixesOf(podCIDRsOf(obj)); len(cidrs) > 0 {
			n.PodCIDRs = cidrs
		}
		if ips := t.primaryIPs(obj.Status.Addresses); len(ips) > 0 {
			n.IPs = ips
		}
	})
}

// primaryIPs returns the node's primary addresses: those of the configuration, and for a family that it says nothing about, that of the Node object.
func (t *nodeTracker) primaryIPs(addresses []corev1.NodeAddress) []netip.Addr {
	ips := slices.Clone(t.config.NodeIPs)
	for _, ip := range primaryIPs(addresses) {
		if !slices.ContainsFunc(ips, func(given netip.Addr) bool { return given.Is4() == ip.Is4() }) {
			ips = append(ips, ip)
		}
	}
	return ips
}

func podCIDRsOf(obj *corev1.Node) []string {
	if len(obj.Spec.PodCIDRs) > 0 || obj.Spec.PodCIDR == "" {
		return obj.Spec.PodCIDRs
	}
	return []string{obj.Spec.PodCIDR}
}

// primaryIPs returns the first address of each family: an InternalIP where there is one, else an ExternalIP.
func primaryIPs(addresses []corev1.NodeAddress) []netip.Addr {
	var ips []netip.Addr
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		for _, typ := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
			i := slices.IndexFunc(addresses, func(a corev1.NodeAddress) bool {
				ip, ok := parseAddr(a.Address)
				return ok && a.Type == typ && f.Of(ip)
			})
			if i >= 0 {
				ip, _ := parseAddr(addresses[i].Address)
				ips = append(ips, ip)
				break
			}
		}
	}
	return ips
}

// prefixesOf reads CIDRs and leaves out what is none.
func prefixesOf(values []string) []netip.Prefix {
	p := parser{}
	return p.prefixes("", values)
}
