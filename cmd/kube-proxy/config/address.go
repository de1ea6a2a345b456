package config

import (
	"fmt"
	"net/netip"

	netutils "k8s.io/utils/net"
)

// parseAddress parses an IP address as Kubernetes does: it accepts leading
// zeros.
func parseAddress(s string) (netip.Addr, error) {
	ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	if !ok {
		return ip, fmt.Errorf("%q is not an IP address", s)
	}
	return ip.Unmap(), nil
}

// parseCIDR parses a CIDR as Kubernetes does: it accepts leading zeros, and
// clears the bits of the host.
func parseCIDR(s string) (netip.Prefix, error) {
	_, n, err := netutils.ParseCIDRSloppy(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	if addr.Is4In6() && size == 128 && bits >= 96 {
		addr, bits = addr.Unmap(), bits-96
	}
	return netip.PrefixFrom(addr, bits), nil
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
