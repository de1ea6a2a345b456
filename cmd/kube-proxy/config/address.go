package config

import (
	"fmt"
	"net/netip"

	netutils "k8s.io/utils/net"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
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

// parseNodePortAddresses parses nodePortAddresses: CIDRs and keywords in any
// combination.
func parseNodePortAddresses(values []string) (out ruleset.NodePortAddresses, err error) {
	for _, s := range values {
		switch s {
		case nodePortPrimary:
			out.Primary = true
		case nodePortLocalhost:
			out.CIDRs = append(out.CIDRs, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
		case nodePortAll:
			out.CIDRs = append(out.CIDRs, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
		default:
			cidr, err := parseCIDR(s)
			if err != nil {
				return out, fmt.Errorf("%q is none of %s, %s, %s and no CIDR",
					s, nodePortPrimary, nodePortLocalhost, nodePortAll)
			}
			out.CIDRs = append(out.CIDRs, cidr)
		}
	}
	return out, nil
}
