package config

import (
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

func parseAddress(s string) (netip.Addr, error) {
	ip, ok := translate.ParseAddr(s)
	if !ok {
		return ip, fmt.Errorf("%q is not an IP address", s)
	}
	return ip, nil
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
			cidr, err := translate.ParsePrefix(s)
			if err != nil {
				return out, fmt.Errorf("%q is none of %s, %s, %s and no CIDR",
					s, nodePortPrimary, nodePortLocalhost, nodePortAll)
			}
			out.CIDRs = append(out.CIDRs, cidr)
		}
	}
	return out, nil
}
