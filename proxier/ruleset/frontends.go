package ruleset

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Address is an address of a Service.
type Address struct {
	netip.Addr
	Kind AddressKind
}

// AddressesOf returns the addresses of a family that a Service claims, without
// duplicates. An address that the Service has twice is a ClusterIP rather than
// a LoadBalancer IP, and that rather than an external IP.
func AddressesOf(f nft.Family, svc *cluster.Service) []Address {
	if !slices.Contains(svc.Families, f) {
		return nil
	}
	var out []Address
	seen := make(map[netip.Addr]struct{})
	add := func(kind AddressKind, addrs []netip.Addr) {
		for _, a := range addrs {
			if _, known := seen[a]; f.Of(a) && !known {
				seen[a] = struct{}{}
				out = append(out, Address{a, kind})
			}
		}
	}
	add(ClusterIP, svc.ClusterIPs)
	add(LoadBalancerIP, svc.LoadBalancerIPs)
	add(ExternalIP, svc.ExternalIPs)
	return out
}

// FrontendsOf returns the frontends of a family that a service port claims. For
// all ports of a Service, AddressesOf and FrontendsAt are faster.
func FrontendsOf(f nft.Family, svc *cluster.Service, port cluster.ServicePort) []ServedFrontend {
	if !slices.Contains(svc.Families, f) {
		return nil
	}
	return FrontendsAt(svc, AddressesOf(f, svc), port)
}

// FrontendsAt returns the frontends of a service port at addresses of its
// Service, and its NodePort.
func FrontendsAt(svc *cluster.Service, addrs []Address, port cluster.ServicePort) []ServedFrontend {
	n := len(addrs)
	if port.NodePort != 0 {
		n++
	}
	out := make([]ServedFrontend, 0, n)
	for _, a := range addrs {
		policy := svc.ExternalPolicy
		if a.Kind == ClusterIP {
			policy = svc.InternalPolicy
		}
		out = append(out, ServedFrontend{Frontend{a.Addr, port.Port, port.Protocol}, a.Kind, policy})
	}
	if port.NodePort != 0 {
		nodePort := Frontend{Port: port.NodePort, Proto: port.Protocol}
		out = append(out, ServedFrontend{nodePort, NodePort, svc.ExternalPolicy})
	}
	return out
}
