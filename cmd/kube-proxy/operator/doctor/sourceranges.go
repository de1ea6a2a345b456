package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// checkSourceRanges checks that loadBalancerSourceRanges restrict the
// LoadBalancer IPs of both families.
func checkSourceRanges(ctx context.Context, n *node) Finding {
	if n.Proxy == nil || n.Services == nil {
		return n.withoutProxy()
	}
	const limit = 20
	var details []string
	for s, err := range n.Services(ctx) {
		if err != nil {
			return unknown(err)
		}
		if addrs := unrestrictedIPs(s); len(addrs) > 0 {
			details = append(details, fmt.Sprintf("%s/%s: %s", s.Namespace, s.Name, list(addrs, limit)))
		}
	}
	count := len(details)
	if count == 0 {
		return ok("loadBalancerSourceRanges restrict all LoadBalancer IPs of their Services")
	}
	if count > limit {
		details = append(details[:limit], fmt.Sprintf("and %d more Services", count-limit))
	}
	return warn(fmt.Sprintf("%d Services have loadBalancerSourceRanges of one family only: all clients of the other "+
		"family may use these LoadBalancer IPs", count),
		"add ranges of the other family to loadBalancerSourceRanges; 0.0.0.0/0 or ::/0 allows all its clients").
		with(details...)
}

// unrestrictedIPs returns the LoadBalancer IPs of a family without a range.
func unrestrictedIPs(s *table.ServiceView) []string {
	var addrs []string
	for _, p := range s.Ports {
		for _, f := range p.Frontends {
			if f.Kind == ruleset.LoadBalancerIP && s.Unrestricted(f.Family) {
				addrs = append(addrs, f.Address.String())
			}
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs)
}
