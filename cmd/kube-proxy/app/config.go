package app

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/proxier"
)

// config translates the flags.
func (f *flags) config() (proxier.Config, error) {
	c := proxier.Config{
		NodeName:      strings.ToLower(strings.TrimSpace(f.hostnameOverride)),
		MasqueradeAll: f.masqueradeAll,
		DetectLocal: proxier.LocalDetection{
			Mode:                proxier.DetectLocalMode(f.detectLocalMode),
			BridgeInterface:     f.bridgeInterface,
			InterfaceNamePrefix: f.interfacePrefix,
		},
	}
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("--hostname-override is not given, and the host name is not known: %w", err)
		}
		c.NodeName = strings.ToLower(strings.TrimSpace(host))
	}
	var err error
	if c.DetectLocal.ClusterCIDRs, err = parseCIDRs(f.clusterCIDR); err != nil {
		return c, fmt.Errorf("--cluster-cidr: %w", err)
	}
	if c.NodePortAddresses, err = proxier.ParseNodePortAddresses(f.nodePortAddresses); err != nil {
		return c, fmt.Errorf("--nodeport-addresses: %w", err)
	}
	return c, nil
}

// parseCIDRs reads CIDRs separated by commas.
func parseCIDRs(s string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	if s == "" {
		return nil, nil
	}
	for _, v := range strings.Split(s, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(v))
		if err != nil {
			return nil, fmt.Errorf("%q is not a CIDR", v)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
