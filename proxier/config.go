package proxier

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Config is the configuration of a Proxier. Fields have the names of
// kube-proxy's configuration file (kubeproxy.config.k8s.io/v1alpha1) where it
// has them.
type Config struct {
	// NodeName is the name of this node in the API (hostnameOverride).
	NodeName string
	// NodeIPs are this node's primary addresses, at most one per family
	// (bindAddress). For a family without one, the address of the Node object
	// is used.
	NodeIPs []netip.Addr
	// Rules is the configuration of the rules. LocalhostNodePorts stands for
	// the feature gate KubeProxyNFTablesLocalhostNodePorts.
	Rules ruleset.Config
	// IgnoreExternalIPs makes the Proxier ignore spec.externalIPs of Services
	// (feature gate AllowServiceExternalIPs=false, KEP-5707).
	IgnoreExternalIPs bool
	// OwnPorts are the addresses and TCP ports on which this process listens.
	// They have priority over NodePorts and, on an address of this node, over
	// external IPs.
	OwnPorts []netip.AddrPort
	// NoHash reports whether the kernel has no nft_hash. Then Services that
	// hash the addresses of clients select endpoints at random.
	NoHash bool
	// NoTimeouts reports whether rules cannot set timeouts of connection
	// tracking in this kernel. Then Rules.RetryAfter has no effect.
	NoTimeouts bool
	// SyncPeriod is the interval at which service ports that the kernel refused
	// are tried again. If a change waits twice as long, the Proxier is
	// unhealthy. 0 means DefaultSyncPeriod.
	SyncPeriod time.Duration
	// MinSyncPeriod is the minimum interval between syncs. 0 means no minimum.
	MinSyncPeriod time.Duration
	// ExplicitSync is for sources that call Sync when their objects are
	// consistent. The On methods do not request a sync themselves then.
	// Otherwise an endpoint that moves from one EndpointSlice to another can be
	// absent from both in a sync.
	ExplicitSync bool
	// NodeOptional makes the node eligible for the traffic of load balancers
	// until the source has a Node object.
	NodeOptional bool
	// HealthChecks makes this node check the endpoints of Services that ask for
	// it. In a cluster, kubelets do that.
	HealthChecks bool
	// Events receives warnings about objects, which are also logged. nil means
	// that they are only logged.
	Events cluster.EventRecorder

	open func() (keep.Kernel, error) // nil except in tests (see table.Config.Open)
}

// DefaultSyncPeriod is the default of kube-proxy.
const DefaultSyncPeriod = 30 * time.Second

// validate returns an error that names every field with an invalid value.
func (c *Config) validate() error {
	var errs []error
	invalid := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.NodeName == "" {
		invalid("nodeName", "must not be empty")
	}
	if c.SyncPeriod < 0 {
		invalid("syncPeriod", "%v is less than 0", c.SyncPeriod)
	}
	if c.MinSyncPeriod < 0 || c.MinSyncPeriod > c.syncPeriod() {
		invalid("minSyncPeriod", "%v is not in the range from 0 to syncPeriod (%v)", c.MinSyncPeriod, c.syncPeriod())
	}
	for i, ip := range c.NodeIPs {
		if !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() {
			invalid(fmt.Sprintf("nodeIPs[%d]", i), "%v is not the address of a node", ip)
		}
	}
	return errors.Join(append(errs, c.Rules.Validate())...)
}

func (c *Config) syncPeriod() time.Duration { return cmp.Or(c.SyncPeriod, DefaultSyncPeriod) }

// noLoopback reports whether NodePorts do not listen on loopback addresses that
// NodePortAddresses includes.
func (c *Config) noLoopback() bool {
	ports := c.Rules.NodePortAddresses
	return (ports.Loopback(nft.IPv4) || ports.Loopback(nft.IPv6)) && !c.Rules.LocalhostNodePorts
}
