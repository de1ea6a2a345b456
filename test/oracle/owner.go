package oracle

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// servicePort is a port of a Service that claims the destination of a
// connection.
type servicePort struct {
	service *cluster.Service
	port    cluster.ServicePort
	kind    kind
}

// kind is the kind of a destination.
type kind int

// The kinds. Kubernetes does not define which Service has an address that
// several claim, except that the API server allocates ClusterIPs and NodePorts
// once. In nftproxy the smallest kind has priority.
const (
	clusterIP      kind = iota // ServiceSpec.clusterIPs
	nodePortOnNode             // ServicePort.nodePort, at an address of this node
	loadBalancerIP             // ServiceStatus.loadBalancer.ingress with ipMode VIP (KEP-1860)
	externalIP                 // ServiceSpec.externalIPs
	nodePort                   // ServicePort.nodePort
)

// owner returns the service port that owns the destination, nil if none does.
// Of Services with the same kind of claim the oldest owns it, then the first by
// name.
func (c *Cluster) owner(q Connection) (best *servicePort) {
	for _, svc := range c.Services {
		for _, port := range svc.Ports {
			s := &servicePort{service: svc, port: port}
			if s.kind = c.claim(q, svc, port); s.kind >= 0 && (best == nil || s.compare(best) < 0) {
				best = s
			}
		}
	}
	return best
}

func (s *servicePort) compare(o *servicePort) int {
	return cmp.Or(cmp.Compare(s.kind, o.kind), s.service.Created.Compare(o.service.Created),
		s.service.Name.Compare(o.service.Name), strings.Compare(s.port.Name, o.port.Name))
}

// claim returns the kind of the destination for a service port, -1 if it does
// not claim it.
func (c *Cluster) claim(q Connection, svc *cluster.Service, port cluster.ServicePort) kind {
	at, number := q.Destination.Addr(), q.Destination.Port()
	has := func(addrs []netip.Addr) bool { return port.Port == number && slices.Contains(addrs, at) }
	isNodePort := port.NodePort == number && c.listens(at)
	switch {
	case port.Protocol != q.Protocol || !c.has(svc, at):
	case has(svc.ClusterIPs):
		return clusterIP
	case isNodePort && slices.Contains(c.Node.LocalIPs, at):
		return nodePortOnNode
	case has(svc.LoadBalancerIPs):
		return loadBalancerIP
	case has(svc.ExternalIPs):
		return externalIP
	case isNodePort:
		return nodePort
	}
	return -1
}

// allows reports whether ServiceSpec.loadBalancerSourceRanges allow a client.
func (c *Cluster) allows(svc *cluster.Service, client netip.Addr) bool {
	contains := func(addr netip.Addr) bool {
		return anyPrefix(svc.SourceRanges, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	ofFamily := func(p netip.Prefix) bool { return sameFamily(p.Addr(), client) }
	switch {
	case svc.SourceRanges == nil:
		return true // the field is not set
	case contains(client):
		return true
	case len(svc.SourceRanges) > 0 && !anyPrefix(svc.SourceRanges, ofFamily):
		return true // as in kube-proxy, ranges of one family do not restrict the other
	case slices.Contains(svc.LoadBalancerIPs, client):
		// As in kube-proxy, the node can have the load balancer's address as
		// the source of its own packets.
		own := func(ip netip.Addr) bool { return sameFamily(ip, client) && contains(ip) }
		return slices.ContainsFunc(c.Node.IPs, own)
	}
	return false
}
