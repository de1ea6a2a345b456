package tabletest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Random generates objects of a family, and makes random changes to a sink.
type Random struct {
	*rand.Rand
	Family nft.Family
}

// NewRandom returns a generator whose objects follow from the seed.
func NewRandom(seed, stream uint64, f nft.Family) Random {
	return Random{rand.New(rand.NewPCG(seed, stream)), f}
}

// Networks of the generated addresses.
const (
	ClusterNet  = 96
	EndpointNet = 244
	NodeNet     = 30
	externalNet = 192
	balancerNet = 198
)

// Addr returns address n of a network.
func (r Random) Addr(net byte, n int) netip.Addr {
	if r.Family == nft.IPv4 {
		return netip.AddrFrom4([4]byte{10, net, byte(n >> 8), byte(n)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: net, 14: byte(n >> 8), 15: byte(n)})
}

// Prefix returns the prefix of a network.
func (r Random) Prefix(net byte) netip.Prefix {
	addr := r.Addr(net, 0)
	return netip.PrefixFrom(addr, addr.BitLen()-16).Masked()
}

// chance returns true in one of n cases.
func (r Random) chance(n int) bool { return r.IntN(n) == 0 }

// RandomServices is the number of different Services.
const RandomServices = 8

// NodePorts are generated from the range of maxNodePorts that begins with
// FirstNodePort. It is small, so that there are conflicts.
const (
	FirstNodePort = 30000
	maxNodePorts  = 6
)

func (r Random) protocol() cluster.Protocol { return cluster.Protocols()[r.IntN(3)] }

func randomName(i int) cluster.ServiceName {
	return cluster.ServiceName{Namespace: "ns", Name: fmt.Sprintf("svc-%d", i)}
}

// external returns an external address. There are few, so that there are
// conflicts, also with ClusterIPs.
func (r Random) external(net byte) netip.Addr {
	switch {
	case r.chance(8):
		return r.Addr(externalNet, r.IntN(4))
	case r.chance(8):
		return r.Addr(ClusterNet, r.IntN(RandomServices))
	}
	return r.Addr(net, r.IntN(4))
}

// Service returns Service i with random fields.
func (r Random) Service(i int) *cluster.Service {
	svc := &cluster.Service{
		Name:           randomName(i),
		Families:       []nft.Family{r.Family},
		Created:        time.Unix(int64(r.IntN(3)), 0),
		ClusterIPs:     []netip.Addr{r.Addr(ClusterNet, i)},
		InternalPolicy: cluster.Policy(r.IntN(2)), ExternalPolicy: cluster.Policy(r.IntN(2)),
	}
	for range r.IntN(3) {
		svc.ExternalIPs = append(svc.ExternalIPs, r.external(externalNet))
	}
	if r.chance(2) {
		svc.LoadBalancerIPs = []netip.Addr{r.external(balancerNet)}
		svc.SourceRanges = r.sourceRanges()
	}
	if r.chance(3) {
		svc.AffinityTimeout = time.Duration(1+r.IntN(3)) * time.Minute
	}
	for p := range 1 + r.IntN(3) {
		port := cluster.ServicePort{Name: fmt.Sprintf("p%d", p), Protocol: r.protocol(), Port: uint16(80 + p)}
		if r.chance(2) {
			port.NodePort = uint16(FirstNodePort + r.IntN(maxNodePorts))
		}
		svc.Ports = append(svc.Ports, port)
	}
	svc.Metrics = r.chance(2)
	if r.chance(2) && svc.AffinityTimeout == 0 {
		svc.Balance = cluster.Balance(1 + r.IntN(2))
	}
	svc.HashTableSize = []int{0, 16, 20}[r.IntN(3)]
	return svc
}

// sourceRanges returns up to four ranges, which can overlap. One of them can be
// this node, also in the other family.
func (r Random) sourceRanges() (ranges []netip.Prefix) {
	if ips := Node().IPs; r.chance(4) {
		ip := ips[r.IntN(len(ips))]
		ranges = append(ranges, netip.PrefixFrom(ip, ip.BitLen()))
	}
	for range r.IntN(4) {
		ip := r.Addr(byte(r.IntN(3)), r.IntN(500))
		ranges = append(ranges, netip.PrefixFrom(ip, r.IntN(ip.BitLen()+1)))
	}
	return ranges
}

// RandomEndpoints is the number of different addresses of endpoints.
const RandomEndpoints = 9

// Endpoint returns a random endpoint. Its address is rarely in a service CIDR.
func (r Random) Endpoint() *cluster.Endpoint {
	e := &cluster.Endpoint{
		EndpointKey: cluster.EndpointKey{
			Source: fmt.Sprintf("slice-%d", r.IntN(2)), Addr: r.Addr(EndpointNet, r.IntN(RandomEndpoints)),
		},
		Node:  []string{"node1", "node2", ""}[r.IntN(3)],
		Ready: r.IntN(4) > 0, Terminating: r.chance(4),
	}
	if r.chance(12) {
		e.Addr = r.Addr(ClusterNet, RandomServices)
	}
	e.Serving = e.Ready || r.chance(2)
	if r.chance(4) {
		e.Weight = cluster.WeightOf(r.IntN(3))
	}
	if r.chance(4) {
		e.Hints = &cluster.Hints{
			Zones: []string{"a", "b"}[:1+r.IntN(2)],
			Nodes: []string{"node1", "node2"}[:r.IntN(2)],
		}
	}
	for p := range 3 {
		for _, proto := range cluster.Protocols() {
			port := cluster.EndpointPort{Name: fmt.Sprintf("p%d", p), Protocol: proto, Port: uint16(8000 + p*r.IntN(2))}
			e.Ports = append(e.Ports, port)
		}
	}
	return e
}

// Endpoints returns up to three endpoints of a source, sorted by address.
func (r Random) Endpoints(source string) []*cluster.Endpoint {
	all := map[netip.Addr]*cluster.Endpoint{}
	for range r.IntN(4) {
		e := r.Endpoint()
		e.Source = source
		all[e.Addr] = e
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *cluster.Endpoint) int { return a.Addr.Compare(b.Addr) })
}

// Node returns node1 with random fields.
func (r Random) Node() *cluster.Node {
	n := Node()
	n.Zone = []string{"", "a", "b"}[r.IntN(3)]
	n.ServiceCIDRs = []netip.Prefix{r.Prefix(ClusterNet), r.Prefix(ClusterNet + 1)}[:r.IntN(3)]
	n.PodCIDRs = []netip.Prefix{r.Prefix(EndpointNet)}[:r.IntN(2)]
	n.NodePortIPs = []netip.Addr{r.Addr(NodeNet, 1), r.Addr(NodeNet, 2), r.Addr(NodeNet, 3)}[:r.IntN(4)]
	return n
}

// Change calls a random method of a sink.
func (r Random) Change(s cluster.Sink) {
	name := randomName(r.IntN(RandomServices))
	switch r.IntN(12) {
	case 0:
		s.DeleteService(name)
	case 1, 2, 3:
		s.SetService(r.Service(r.IntN(RandomServices)))
	case 4, 5:
		DeleteEndpoint(s, name, r.Endpoint().EndpointKey)
	case 6:
		s.SetNode(r.Node())
	case 7, 8:
		s.SetEndpoints(name, "slice-0", r.Endpoints("slice-0"))
	default:
		SetEndpoint(s, name, r.Endpoint())
	}
}
