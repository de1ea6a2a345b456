package proxier

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// Config is the configuration of a Proxier. The names are those of kube-proxy's configuration file
// (kubeproxy.config.k8s.io/v1alpha1) where it has them.
type Config struct {
	// NodeName is the name of this node in the API (hostnameOverride).
	NodeName string
	// NodeIPs are this node's primary addresses, at most one a family (bindAddress). A family without one has that of the Node object.
	NodeIPs []netip.Addr
	// MasqueradeBit is the bit of the packet mark that asks for masquerading, 0 to 31. nil: DefaultMasqueradeBit.
	MasqueradeBit *int
	// MasqueradeAll masquerades all traffic to ClusterIPs.
	MasqueradeAll bool
	// DetectLocal tells the traffic of this cluster's pods from other traffic.
	DetectLocal LocalDetection
	// NodePortAddresses says on which of this node's addresses NodePorts listen.
	NodePortAddresses NodePortAddresses
	// IgnoreExternalIPs has the Proxier ignore spec.externalIPs of Services
	// (feature gate AllowServiceExternalIPs=false, KEP-5707). The Sink does not
	// receive them.
	IgnoreExternalIPs bool
	// SyncPeriod is the interval at which service ports that the kernel refused are
	// tried again. Changes that wait twice as long make the Proxier unhealthy. 0
	// means DefaultSyncPeriod.
	SyncPeriod time.Duration
	// MinSyncPeriod is the minimum interval between syncs. 0 means no minimum.
	MinSyncPeriod time.Duration
	// ExplicitSync is for sources that tell changes in rounds and call Sync after each: the On methods then ask for no sync themselves, so that
	// none comes in the middle of a round, where an endpoint that goes from one EndpointSlice to another is in neither.
	ExplicitSync bool
	// Events gets the events about Services. nil: they go to the log only.
	Events EventRecorder
}

// Defaults of kube-proxy's configuration.
const (
	DefaultMasqueradeBit = 14
	DefaultSyncPeriod    = 30 * time.Second
)

// DetectLocalMode is a way to tell the traffic of this cluster's pods from other traffic (detectLocalMode).
type DetectLocalMode string

// The ways of kube-proxy. With none, traffic from outside to ClusterIPs is not masqueraded and
// traffic of pods to external addresses is not short-circuited.
const (
	DetectLocalNone                DetectLocalMode = ""
	DetectLocalClusterCIDR         DetectLocalMode = "ClusterCIDR"
	DetectLocalNodeCIDR            DetectLocalMode = "NodeCIDR"
	DetectLocalBridgeInterface     DetectLocalMode = "BridgeInterface"
	DetectLocalInterfaceNamePrefix DetectLocalMode = "InterfaceNamePrefix"
)

// LocalDetection tells the traffic of this cluster's pods from other traffic.
type LocalDetection struct {
	Mode DetectLocalMode
	// ClusterCIDRs are the ranges of all pods of the cluster, at most one a family, for ClusterCIDR.
	ClusterCIDRs []netip.Prefix
	// BridgeInterface is the bridge that this node's pods are connected to, for BridgeInterface.
	BridgeInterface string
	// InterfaceNamePrefix is how the names of this node's pod interfaces begin, for InterfaceNamePrefix.
	InterfaceNamePrefix string
}

// NodePortAddresses says on which of a node's addresses NodePorts listen: on its primary addresses, which is the default,
// or on its addresses within CIDRs. Never on loopback addresses.
type NodePortAddresses struct {
	CIDRs []netip.Prefix
}

// primary is the word for the default in kube-proxy's configuration.
const primary = "primary"

// ParseNodePortAddresses reads the values of kube-proxy's nodePortAddresses: none or "primary", or CIDRs.
func ParseNodePortAddresses(values []string) (NodePortAddresses, error) {
	var a NodePortAddresses
	for i, v := range values {
		if v == primary {
			if len(values) > 1 {
				return a, fmt.Errorf("nodePortAddresses[%d]: %q must stand alone", i, primary)
			}
			return a, nil
		}
		p, err := netip.ParsePrefix(v)
		if err != nil {
			return a, fmt.Errorf("nodePortAddresses[%d]: %q is neither %q nor a CIDR", i, v, primary)
		}
		a.CIDRs = append(a.CIDRs, p.Masked())
	}
	return a, nil
}

// of says which addresses of one family are meant: the primary ones, all of them, or, if neither, those within the CIDRs. CIDRs
// of the other family only do not restrict this one, as in kube-proxy.
func (a NodePortAddresses) of(f nft.Family) (primary, all bool) {
	if len(a.CIDRs) == 0 {
		return true, false
	}
	all = true
	for _, p := range a.CIDRs {
		if f.Of(p.Addr()) {
			if p.Bits() == 0 {
				return false, true
			}
			all = false
		}
	}
	return false, all
}

// validate names every field that has a wrong value.
func (c *Config) validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.NodeName == "" {
		bad("nodeName", "must not be empty")
	}
	if b := c.masqueradeBit(); b < 0 || b > 31 {
		bad("masqueradeBit", "%d is not in the range from 0 to 31", b)
	}
	if c.SyncPeriod < 0 {
		bad("syncPeriod", "%v is less than 0", c.SyncPeriod)
	}
	if c.MinSyncPeriod < 0 || c.MinSyncPeriod > c.syncPeriod() {
		bad("minSyncPeriod", "%v is not in the range from 0 to syncPeriod (%v)", c.MinSyncPeriod, c.syncPeriod())
	}
	for i, ip := range c.NodeIPs {
		if !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() {
			bad(fmt.Sprintf("nodeIPs[%d]", i), "%v is not the address of a node", ip)
		}
	}
	errs = append(errs, c.DetectLocal.validate())
	return errors.Join(errs...)
}

func (d *LocalDetection) validate() error {
	modes := []DetectLocalMode{
		DetectLocalNone, DetectLocalClusterCIDR, DetectLocalNodeCIDR, DetectLocalBridgeInterface, DetectLocalInterfaceNamePrefix,
	}
	switch {
	case !slices.Contains(modes, d.Mode):
		return fmt.Errorf("detectLocalMode: %q is not supported: supported are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix", d.Mode)
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

func (c *Config) masqueradeBit() int {
	if c.MasqueradeBit == nil {
		return DefaultMasqueradeBit
	}
	return *c.MasqueradeBit
}

func (c *Config) syncPeriod() time.Duration {
	if c.SyncPeriod == 0 {
		return DefaultSyncPeriod
	}
	return c.SyncPeriod
}
