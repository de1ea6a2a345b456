package proxier

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// frontendKind is one of the ways in which clients can name a service port.
type frontendKind uint8

// The kinds of frontends. Of two kinds with the same address, the one that comes
// first has the better claim (see claims).
const (
	clusterIP frontendKind = iota
	loadBalancerIP
	externalIP
	nodePortFrontend
)

// frontend is one address and port at which clients reach a service port. Only one service port can have it.
type frontend struct {
	addr  netip.Addr // zero for a NodePort
	port  uint16
	proto Protocol
}

// String returns the frontend as events show it.
func (f frontend) String() string {
	if !f.addr.IsValid() {
		return fmt.Sprintf("NodePort %d/%s", f.port, f.proto)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.addr, f.port), f.proto)
}

// servedFrontend is a frontend and how it is served.
type servedFrontend struct {
	frontend
	kind frontendKind
	// policy says which endpoints its traffic may go to.
	policy Policy
}

// plan is all that the rows of one service port depend on: what render needs, and nothing else. A plan is not
// modified once it is made.
type plan struct {
	// service and port are the objects that it was made of.
	service *Service
	port    ServicePort
	// frontends are those that the service port has, without those that an older Service has.
	frontends []servedFrontend
	// cluster are the targets that traffic may use from anywhere, local those for traffic that must stay on this node, of
	// which there are none if cluster is empty. A target's place is its index in the rows.
	cluster, local []target
	// serving are all endpoints of a UDP service port that established flows may go on to use, wherever they are.
	serving []netip.AddrPort
	// sources may use the LoadBalancer IPs; if not guarded, everybody may.
	sources []netip.Prefix
	guarded bool
}

// name returns the service port's name: namespace/name:port.
func (p *plan) name() string { return servicePortName(p.service.Name, p.port.Name) }

func servicePortName(svc ServiceName, port string) string {
	if port == "" {
		return svc.String()
	}
	return svc.String() + ":" + port
}

func (p *plan) affinity() time.Duration { return p.service.AffinityTimeout }

// frontendsOf lists the frontends of a family that a service port asks for. Each comes once: a ClusterIP before a LoadBalancer IP
// before an external IP of the same address.
func frontendsOf(f nft.Family, svc *Service, port ServicePort) []servedFrontend {
	if !slices.Contains(svc.Families, f) {
		return nil
	}
	var out []servedFrontend
	add := func(kind frontendKind, policy Policy, addrs []netip.Addr) {
		for _, a := range addrs {
			if !f.Of(a) || slices.ContainsFunc(out, func(o servedFrontend) bool { return o.addr == a }) {
				continue
			}
			out = append(out, servedFrontend{frontend{a, port.Port, port.Protocol}, kind, policy})
		}
	}
	add(clusterIP, svc.InternalPolicy, svc.ClusterIPs)
	add(loadBalancerIP, svc.ExternalPolicy, svc.LoadBalancerIPs)
	add(externalIP, svc.ExternalPolicy, svc.ExternalIPs)
	if port.NodePort != 0 {
		out = append(out, servedFrontend{frontend{netip.Addr{}, port.NodePort, port.Protocol}, nodePortFrontend, svc.ExternalPolicy})
	}
	return out
}

// sourcesFor returns the prefixes that may use the LoadBalancer IPs of a family, none of which overlap; guarded says whether there are
// any but all. If a range holds this node's own address, the node may use them too, which it does with the
// LoadBalancer IP itself as the source.
func sourcesFor(f nft.Family, svc *Service, node *Node) (sources []netip.Prefix, guarded bool) {
	if svc.SourceRanges == nil {
		return nil, false
	}
	for _, p := range svc.SourceRanges {
		if f.Of(p.Addr()) {
			sources = append(sources, p.Masked())
		}
	}
	if len(sources) == 0 {
		// Ranges of the other family only say nothing about this one.
		return nil, len(svc.SourceRanges) == 0
	}
	holdsNode := slices.ContainsFunc(node.IPs, func(ip netip.Addr) bool {
		return slices.ContainsFunc(sources, func(p netip.Prefix) bool { return p.Contains(ip) })
	})
	if holdsNode {
		for _, ip := range svc.LoadBalancerIPs {
			if f.Of(ip) {
				sources = append(sources, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	return disjoint(sources), true
}

// disjoint returns prefixes without those that others hold.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	prefixes = slices.Clone(prefixes)
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
	})
	var out []netip.Prefix
	for _, p := range prefixes {
		if len(out) == 0 || !out[len(out)-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}
