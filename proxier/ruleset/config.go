package ruleset

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Config is the part of a node's configuration that its rules depend on. The
// fields have the names of kube-proxy's configuration file
// (kubeproxy.config.k8s.io/v1alpha1).
type Config struct {
	// MasqueradeBit is the bit of the packet mark that requests masquerading,
	// from 0 to 31. nil means DefaultMasqueradeBit.
	MasqueradeBit *int
	// MasqueradeAll masquerades all traffic to ClusterIPs.
	MasqueradeAll bool
	// DetectLocal recognizes the traffic of this cluster's pods.
	DetectLocal LocalDetection
	// NodePortAddresses selects the addresses of this node on which NodePorts
	// listen.
	NodePortAddresses NodePortAddresses
	// LocalhostNodePorts reports whether this node serves TCP NodePorts on
	// 127.0.0.1 and ::1 if NodePortAddresses includes them (KEP-6032). The
	// rules do not serve them; they reject the NodePorts that are not served.
	LocalhostNodePorts bool
	// ServiceMetrics selects the Services whose connections are counted
	// (--service-metrics).
	ServiceMetrics ServiceMetrics
	// ResetStaleConnections resets connections to endpoints that are gone
	// (--reset-stale-connections): they were last seen terminating, or neither
	// ready nor serving, and have been in no EndpointSlice for half a second.
	ResetStaleConnections bool
	// Eject makes new connections avoid TCP endpoints that do not answer
	// (--eject).
	Eject bool
	// RetryAfter is how long a connection without an answer keeps its endpoint
	// (--retry-after): whole seconds. 0 means that it keeps it for ever.
	RetryAfter time.Duration
	// Budgets limit the rows of Services and namespaces.
	Budgets Budgets
	// HashTableSize is the number of slots of Services that do not set it. 0
	// means cluster.DefaultHashTableSize.
	HashTableSize int
	// AffinitySeed is the seed of the choice of affinity sets. 0 means a random
	// one.
	AffinitySeed uint64
	// NumberLimit is the number of rows that a service port must save to get a
	// number (see class.go). 0 means DefaultNumberLimit.
	NumberLimit int
}

// Slots returns the number of slots of a Service (see slotsOf).
func (c *Config) Slots(svc *cluster.Service) int {
	return cmp.Or(svc.HashTableSize, c.HashTableSize, cluster.DefaultHashTableSize)
}

// DefaultMasqueradeBit is the default of kube-proxy.
const DefaultMasqueradeBit = 14

// mark returns the packet mark that requests masquerading.
func (c *Config) mark() uint32 { return 1 << c.masqueradeBit() }

func (c *Config) masqueradeBit() int {
	if c.MasqueradeBit == nil {
		return DefaultMasqueradeBit
	}
	return *c.MasqueradeBit
}

// Localhost reports whether NodePorts of a family are served on 127.0.0.1 or
// ::1.
func (c *Config) Localhost(f nft.Family) bool {
	return c.LocalhostNodePorts && c.NodePortAddresses.Loopback(f)
}

// Validate returns an error that names every field with an invalid value.
func (c *Config) Validate() error {
	var errs []error
	if b := c.masqueradeBit(); b < 0 || b > 31 {
		errs = append(errs, fmt.Errorf("masqueradeBit: %d is not in the range from 0 to 31", b))
	}
	if err := c.ServiceMetrics.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("serviceMetrics: %w", err))
	}
	if d := c.RetryAfter; d < 0 || d > MaxRetryAfter || d%time.Second != 0 {
		errs = append(errs, fmt.Errorf("retryAfter: %v is not a number of seconds from 0 to %v", d, MaxRetryAfter))
	}
	if err := c.Budgets.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("budgets: %w", err))
	}
	return errors.Join(append(errs, c.DetectLocal.validate())...)
}

// DetectLocalMode is a way to recognize the traffic of this cluster's pods
// (detectLocalMode).
type DetectLocalMode string

// The modes of kube-proxy. With DetectLocalNone, traffic from outside the
// cluster to ClusterIPs is not masqueraded, and pods that use an external
// address with externalTrafficPolicy Local reach the endpoints of this node
// only.
const (
	DetectLocalNone                DetectLocalMode = ""
	DetectLocalClusterCIDR         DetectLocalMode = "ClusterCIDR"
	DetectLocalNodeCIDR            DetectLocalMode = "NodeCIDR"
	DetectLocalBridgeInterface     DetectLocalMode = "BridgeInterface"
	DetectLocalInterfaceNamePrefix DetectLocalMode = "InterfaceNamePrefix"
)

// LocalDetection recognizes the traffic of this cluster's pods.
type LocalDetection struct {
	Mode DetectLocalMode
	// ClusterCIDRs are the ranges of all pods of the cluster, at most one per
	// family, for mode ClusterCIDR.
	ClusterCIDRs []netip.Prefix
	// BridgeInterface is the bridge that connects this node's pods, for mode
	// BridgeInterface.
	BridgeInterface string
	// InterfaceNamePrefix is the prefix of the names of this node's pod
	// interfaces, for mode InterfaceNamePrefix.
	InterfaceNamePrefix string
}

func (d *LocalDetection) validate() error {
	modes := []DetectLocalMode{
		DetectLocalNone, DetectLocalClusterCIDR, DetectLocalNodeCIDR,
		DetectLocalBridgeInterface, DetectLocalInterfaceNamePrefix,
	}
	switch {
	case !slices.Contains(modes, d.Mode):
		return fmt.Errorf("detectLocalMode: %q is not supported: "+
			"supported are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix", d.Mode)
	case d.Mode == DetectLocalBridgeInterface:
		return validateInterface("detectLocal.bridgeInterface", d.BridgeInterface)
	case d.Mode == DetectLocalInterfaceNamePrefix:
		return validateInterface("detectLocal.interfaceNamePrefix", d.InterfaceNamePrefix)
	}
	for i, p := range d.ClusterCIDRs {
		for _, q := range d.ClusterCIDRs[:i] {
			if nft.FamilyOf(p.Addr()) == nft.FamilyOf(q.Addr()) {
				return fmt.Errorf("clusterCIDR: %v and %v are of the same family, only one a family is supported", q, p)
			}
		}
	}
	return nil
}

// maxInterfaceName is the kernel's IFNAMSIZ without the final NUL.
const maxInterfaceName = 15

func validateInterface(field, name string) error {
	if name == "" || len(name) > maxInterfaceName || strings.ContainsAny(name, "/ \t\n\"*") {
		return fmt.Errorf("%s: %q is not the name of an interface", field, name)
	}
	return nil
}

// match returns the match for traffic of this cluster's pods. It is nil if the
// pods of the family cannot be recognized.
func (d *LocalDetection) match(f nft.Family, node *cluster.Node) *localMatch {
	switch d.Mode {
	case DetectLocalClusterCIDR:
		return fromPrefix(f, d.ClusterCIDRs)
	case DetectLocalNodeCIDR:
		return fromPrefix(f, node.PodCIDRs)
	case DetectLocalBridgeInterface:
		return fromInterface(d.BridgeInterface)
	case DetectLocalInterfaceNamePrefix:
		return fromInterface(d.InterfaceNamePrefix + "*")
	}
	return nil
}

// fromPrefix matches packets from the first prefix of the family:
//
//	ip saddr 10.244.0.0/16
func fromPrefix(f nft.Family, prefixes []netip.Prefix) *localMatch {
	for _, p := range prefixes {
		if f.Of(p.Addr()) {
			return &localMatch{nft.Within(nft.Saddr(f), p), nft.NotWithin(nft.Saddr(f), p)}
		}
	}
	return nil
}

// fromInterface matches packets that arrive on an interface:
//
//	iifname "veth*"
func fromInterface(name string) *localMatch {
	return &localMatch{nft.InInterface(name), nft.NotInInterface(name)}
}

// NodePortAddresses selects the addresses of a node on which NodePorts listen:
// the primary ones, and those within the CIDRs. Loopback addresses are never
// selected by the rules; see Loopback.
type NodePortAddresses struct {
	// Primary selects the node's primary addresses. Without CIDRs they are
	// always selected.
	Primary bool
	CIDRs   []netip.Prefix
}

// primary reports whether the node's primary addresses are selected.
func (a NodePortAddresses) primary() bool { return a.Primary || len(a.CIDRs) == 0 }

// Covers reports whether a CIDR of the family is configured, or the primary
// address. Otherwise all addresses of the family are selected, as in
// kube-proxy.
func (a NodePortAddresses) Covers(f nft.Family) bool {
	return a.primary() || len(f.Prefixes(a.CIDRs)) > 0
}

// Loopback reports whether a loopback CIDR includes 127.0.0.1 or ::1. A CIDR
// of all addresses does not count (KEP-6032).
func (a NodePortAddresses) Loopback(f nft.Family) bool {
	return slices.ContainsFunc(a.CIDRs, func(p netip.Prefix) bool {
		return p.Addr().IsLoopback() && p.Contains(LocalhostAddr(f))
	})
}

// LocalhostAddr returns the loopback address on which NodePorts of a family can
// be served: 127.0.0.1 or ::1.
func LocalhostAddr(f nft.Family) netip.Addr {
	if f == nft.IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// on returns the addresses of a node on which NodePorts listen. NodePorts
// listen on all addresses of a family that has no CIDR and no known primary
// address.
func (a NodePortAddresses) on(f nft.Family, node *cluster.Node) []netip.Addr {
	all, cidrs := []netip.Addr{f.Unspecified()}, f.Prefixes(a.CIDRs)
	if slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		return all
	}
	out := []netip.Addr{}
	add := func(ips []netip.Addr, except []netip.Addr) {
		for _, ip := range ips {
			if f.Of(ip) && !ip.IsLoopback() && !slices.Contains(except, ip) {
				out = append(out, ip)
			}
		}
	}
	if len(cidrs) > 0 {
		add(node.NodePortIPs, nil)
	}
	if a.primary() {
		add(node.IPs, out)
	}
	if len(cidrs) == 0 && len(out) == 0 {
		return all
	}
	return out
}

// loopbackOn returns the selected loopback addresses of a node.
func (a NodePortAddresses) loopbackOn(f nft.Family, node *cluster.Node) []netip.Addr {
	if len(f.Prefixes(a.CIDRs)) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(node.NodePortIPs), func(ip netip.Addr) bool {
		return !f.Of(ip) || !ip.IsLoopback()
	})
}

// ServiceMetrics selects the Services whose connections are counted.
type ServiceMetrics string

// The values of ServiceMetrics. The default is ServiceMetricsOff.
const (
	ServiceMetricsOff       ServiceMetrics = "off"
	ServiceMetricsAnnotated ServiceMetrics = "annotated" // those with cluster.Service.Metrics
	ServiceMetricsAll       ServiceMetrics = "all"
)

// Validate returns an error if the value is not supported.
func (m ServiceMetrics) Validate() error {
	switch m {
	case "", ServiceMetricsOff, ServiceMetricsAnnotated, ServiceMetricsAll:
		return nil
	}
	return fmt.Errorf("%q is not supported: supported are off, annotated, all", string(m))
}

// Enabled reports whether the connections of any Service are counted.
func (m ServiceMetrics) Enabled() bool { return m == ServiceMetricsAnnotated || m == ServiceMetricsAll }

// counts reports whether the connections of a Service are counted.
func (m ServiceMetrics) counts(svc *cluster.Service) bool {
	return m == ServiceMetricsAll || m == ServiceMetricsAnnotated && svc.Metrics
}

// PodsChain is the name of the chain whose rules Pods reads.
const PodsChain = chainExternalLocal

// Pods is how rules recognize packets of this cluster's pods.
type Pods struct {
	// Range is the range of their addresses. It is not valid if the rules
	// recognize them by the interface.
	Range netip.Prefix
	// Interface is the name of the interface, or its beginning and *.
	Interface string
}

// String returns `the range 10.244.0.0/16` or `interface veth*`.
func (p Pods) String() string {
	if p.Range.IsValid() {
		return "the range " + p.Range.String()
	}
	return "interface " + p.Interface
}

// HasInterface reports whether the rules recognize pods by an interface with
// this name.
func (p Pods) HasInterface(name string) bool {
	prefix, wildcard := strings.CutSuffix(p.Interface, "*")
	return name == prefix || wildcard && strings.HasPrefix(name, prefix)
}

// PodsOf returns how the rules of PodsChain recognize pods. ok is false if they
// recognize none.
func PodsOf(f nft.Family, rules []nft.Rule) (pods Pods, ok bool) {
	for _, rule := range rules {
		if p, ok := rule.Prefix(nft.Saddr(f)); ok {
			return Pods{Range: p}, true
		}
		if name, ok := rule.Interface(); ok {
			return Pods{Interface: name}, true
		}
	}
	return Pods{}, false
}
