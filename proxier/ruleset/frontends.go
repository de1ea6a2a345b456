package ruleset

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// AddressKind is the kind of a frontend's address. If two service ports claim
// the same address, the smaller kind has priority.
type AddressKind uint8

// The kinds of addresses.
const (
	ClusterIP AddressKind = iota
	LoadBalancerIP
	ExternalIP
	NodePort // all addresses of the node, or some of them
)

// String returns the kind in CamelCase, such as ClusterIP.
func (k AddressKind) String() string {
	return [...]string{"ClusterIP", "LoadBalancerIP", "ExternalIP", "NodePort"}[k]
}

// MarshalText implements encoding.TextMarshaler with String.
func (k AddressKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *AddressKind) UnmarshalText(text []byte) error {
	for kind := ClusterIP; kind <= NodePort; kind++ {
		if kind.String() == string(text) {
			*k = kind
			return nil
		}
	}
	return fmt.Errorf("%q is not a kind of addresses", text)
}

// Frontend is one address and port at which clients reach a service port. Only
// one service port can own it.
type Frontend struct {
	Addr  netip.Addr // zero for a NodePort
	Port  uint16
	Proto cluster.Protocol
}

// IsNodePort reports whether the frontend is a NodePort.
func (f Frontend) IsNodePort() bool { return !f.Addr.IsValid() }

// String returns the frontend for events.
func (f Frontend) String() string {
	if f.IsNodePort() {
		return fmt.Sprintf("NodePort %d/%s", f.Port, f.Proto)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.Addr, f.Port), f.Proto)
}

// ServedFrontend is a frontend of a service port, and how it is served.
type ServedFrontend struct {
	Frontend
	Kind   AddressKind
	Policy cluster.Policy
}

// IsClusterIP reports whether the frontend is a ClusterIP. All others follow
// the externalTrafficPolicy.
func (f ServedFrontend) IsClusterIP() bool { return !f.IsNodePort() && f.Kind == ClusterIP }

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
