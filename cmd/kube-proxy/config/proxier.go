package config

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Proxier returns the configuration of the proxier. Without a hostnameOverride,
// NodeName is the name of the host.
func (o *Options) Proxier() (proxier.Config, error) {
	c := o.Configuration
	out := proxier.Config{
		MasqueradeAll:     c.NFTables.MasqueradeAll,
		IgnoreExternalIPs: !o.FeatureGate.Enabled(gateExternalIPs),
		SyncPeriod:        c.NFTables.SyncPeriod.Duration,
		MinSyncPeriod:     c.NFTables.MinSyncPeriod.Duration,
		DetectLocal: ruleset.LocalDetection{
			Mode:                ruleset.DetectLocalMode(c.DetectLocalMode),
			BridgeInterface:     c.DetectLocal.BridgeInterface,
			InterfaceNamePrefix: c.DetectLocal.InterfaceNamePrefix,
		},
	}
	bit := int(*c.NFTables.MasqueradeBit)
	out.MasqueradeBit = &bit
	var err error
	if out.NodeName, err = nodeName(c.HostnameOverride, os.Hostname); err != nil {
		return out, err
	}
	ip, err := parseAddress(c.BindAddress)
	if err != nil {
		return out, fmt.Errorf("bindAddress: %w", err)
	}
	if !ip.IsUnspecified() {
		out.NodeIPs = []netip.Addr{ip}
	}
	if out.DetectLocal.Mode == ruleset.DetectLocalClusterCIDR && c.ClusterCIDR != "" {
		if out.DetectLocal.ClusterCIDRs, err = parseCIDRs(strings.Split(c.ClusterCIDR, ",")); err != nil {
			return out, fmt.Errorf("clusterCIDR: %w", err)
		}
	}
	if a := c.NodePortAddresses; len(a) != 1 || a[0] != primary {
		if out.NodePortAddresses.CIDRs, err = parseCIDRs(a); err != nil {
			return out, fmt.Errorf("nodePortAddresses: %w", err)
		}
	}
	return out, nil
}

func parseCIDRs(values []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range values {
		p, err := parseCIDR(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// nodeName is the name of this node: the one given, or the host's.
func nodeName(override string, hostname func() (string, error)) (string, error) {
	name := override
	if name == "" {
		var err error
		if name, err = hostname(); err != nil {
			return "", fmt.Errorf("the host name is not known (%w): name the node with --hostname-override", err)
		}
	}
	if name = canonicalName(name); name == "" {
		return "", fmt.Errorf("the host name is empty: name the node with --hostname-override")
	}
	return name, nil
}
