package doctor

import (
	"context"
	"github.com/nftproxy/nftproxy/proxier/leftovers"
)

// checkLeftovers checks for rules of other modes of kube-proxy.
func checkLeftovers(context.Context, *node) Finding {
	found, err := leftovers.Find()
	switch {
	case len(found) > 0:
		return warn("rules of kube-proxy's mode iptables or ipvs can translate packets before nftproxy does",
			"restart nftproxy, which removes them; if they return, another kube-proxy runs in that mode").with(found...)
	case err != nil:
		return unknown(err)
	}
	return ok("no rules of other modes of kube-proxy")
}
