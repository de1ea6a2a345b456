package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Proxier returns the configuration of the proxier. The default of NodeName
// is the host name.
func (o *Options) Proxier() (proxier.Config, error) {
	c := o.Configuration
	out := proxier.Config{
		IgnoreExternalIPs: !o.FeatureGate.Enabled(gateExternalIPs),
		SyncPeriod:        c.NFTables.SyncPeriod.Duration,
		MinSyncPeriod:     c.NFTables.MinSyncPeriod.Duration,
		Rules:             o.Rules,
	}
	rules := &out.Rules
	rules.MasqueradeAll = c.NFTables.MasqueradeAll
	rules.LocalhostNodePorts = o.FeatureGate.Enabled(gateLocalhostNodePorts)
	rules.DetectLocal = ruleset.LocalDetection{
		Mode:                ruleset.DetectLocalMode(c.DetectLocalMode),
		BridgeInterface:     c.DetectLocal.BridgeInterface,
		InterfaceNamePrefix: c.DetectLocal.InterfaceNamePrefix,
	}
	for _, address := range []string{c.HealthzBindAddress, c.MetricsBindAddress} {
		if at, err := netip.ParseAddrPort(address); err == nil { // empty: not served
			out.OwnPorts = append(out.OwnPorts, at)
		}
	}
	bit := int(*c.NFTables.MasqueradeBit)
	rules.MasqueradeBit = &bit
	var err error
	if out.NodeName, err = nodeName(c.HostnameOverride, os.Hostname); err != nil {
		return out, err
	}
	if ip, ok := translate.ParseAddr(c.BindAddress); ok && !ip.IsUnspecified() {
		out.NodeIPs = []netip.Addr{ip}
	}
	if rules.DetectLocal.Mode == ruleset.DetectLocalClusterCIDR && c.ClusterCIDR != "" {
		rules.DetectLocal.ClusterCIDRs = translate.Prefixes(strings.Split(c.ClusterCIDR, ","))
	}
	rules.NodePortAddresses, err = parseNodePortAddresses(c.NodePortAddresses)
	return out, err
}

// nodeName returns the name of this node: override, or the host name.
func nodeName(override string, hostname func() (string, error)) (string, error) {
	name := override
	if name == "" {
		var err error
		if name, err = hostname(); err != nil {
			return "", fmt.Errorf("get the host name: %w; set --hostname-override", err)
		}
	}
	if name = canonicalName(name); name == "" {
		return "", errors.New("the host name is empty; set --hostname-override")
	}
	return name, nil
}
