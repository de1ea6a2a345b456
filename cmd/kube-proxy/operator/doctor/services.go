package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// checkServiceAddresses looks for external IPs and LoadBalancer IPs that belong
// to something else: their Service gets its connections.
func checkServiceAddresses(ctx context.Context, n *host) Finding {
	if n.Proxy == nil || n.Services == nil {
		return n.withoutProxy()
	}
	claimed, clusterIPs := make(map[claim]bool), make(map[netip.Addr]cluster.ServiceName)
	for s, err := range n.Services(ctx) {
		if err != nil {
			return unknown(err)
		}
		addClaims(s, claimed, clusterIPs)
	}
	owners, err := ownersOf(claimed, clusterIPs)
	if errors.Is(err, node.ErrNoTable) {
		return skipped("no table of nftproxy")
	}
	if err != nil {
		return unknown(err)
	}
	var taken, onNode []string
	for c, owner := range owners {
		line := fmt.Sprintf("%s: %s %s is %s", c.service, c.kind, c.addr, owner)
		switch {
		case owner == thisNode && n.Proxy.Manifests != nil: // the usual address on a machine without a cluster
		case owner == thisNode && c.kind == ruleset.LoadBalancerIP:
			onNode = append(onNode, line)
		default:
			taken = append(taken, line)
		}
	}
	const remedy = "AllowServiceExternalIPs: false in featureGates makes nftproxy ignore external IPs, and the " +
		"admission plugin DenyServiceExternalIPs refuses new ones; only controllers should have the right to " +
		"update services/status"
	switch {
	case len(taken) > 0:
		return warn(fmt.Sprintf("%d addresses of Services belong to nodes, pods or other Services, whose connections "+
			"they get", len(taken)), remedy).With(sortedLines(taken)...)
	case len(onNode) > 0:
		return info(fmt.Sprintf("%d LoadBalancer IPs are addresses of this node: their Services get the connections "+
			"to programs of this node that listen on their ports", len(onNode)), "").With(sortedLines(onNode)...)
	}
	return ok("no external IP or LoadBalancer IP belongs to this node, a pod or another Service")
}

// claim is an address that a Service has from outside of the cluster.
type claim struct {
	service cluster.ServiceName
	kind    ruleset.AddressKind
	addr    netip.Addr
}

func addClaims(s *table.ServiceView, claimed map[claim]bool, clusterIPs map[netip.Addr]cluster.ServiceName) {
	for _, p := range s.Ports {
		for _, f := range p.Frontends {
			switch f.Kind {
			case ruleset.ClusterIP:
				clusterIPs[f.Address] = s.ServiceName
			case ruleset.ExternalIP, ruleset.LoadBalancerIP:
				claimed[claim{s.ServiceName, f.Kind, f.Address}] = true
			}
		}
	}
}

const thisNode = "an address of this node"

// ownersOf returns the claims whose address belongs to something else, and what
// this is.
func ownersOf(claimed map[claim]bool, clusterIPs map[netip.Addr]cluster.ServiceName) (map[claim]string, error) {
	owners := make(map[claim]string)
	err := node.InTables(func(k *node.Kernel) error {
		pods, known, err := k.Pods()
		if err != nil {
			return err
		}
		ranges, err := k.ServiceRanges()
		if err != nil {
			return err
		}
		for c := range claimed {
			if nft.FamilyOf(c.addr) != k.Table.Family {
				continue
			}
			typ, err := k.RouteType(c.addr)
			if err != nil {
				return err
			}
			out, _ := k.Interface(c.addr) // "" without a route
			other, isClusterIP := clusterIPs[c.addr]
			switch {
			case typ == unix.RTN_LOCAL:
				owners[c] = thisNode
			case known && isPod(pods, c.addr, out):
				owners[c] = "an address of a pod"
			case isClusterIP: // of another Service: a Service has each address once
				owners[c] = "the ClusterIP of " + other.String()
			case slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(c.addr) }):
				owners[c] = "in a service CIDR"
			}
		}
		return nil
	})
	return owners, err
}

// isPod reports whether the rules treat an address as a pod. out is the
// interface of the route to it.
func isPod(pods ruleset.Pods, addr netip.Addr, out string) bool {
	if pods.Range.IsValid() {
		return pods.Range.Contains(addr)
	}
	return out != "" && pods.HasInterface(out)
}

// checkSourceRanges checks that loadBalancerSourceRanges restrict the
// LoadBalancer IPs of both families.
func checkSourceRanges(ctx context.Context, n *host) Finding {
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
		With(details...)
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
