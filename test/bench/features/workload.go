package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// feature is a use of Services that is measured.
type feature struct {
	name string // for --features
	// about describes the objects that are counted.
	about string
	// size is the larger number of objects.
	size int
	// shape returns the number of Services for n objects, and the numbers of
	// ports and endpoints of each Service.
	shape func(n int) (services, ports, endpoints int)
	// use makes the plain Service number i use the feature; nil for none.
	use func(svc *cluster.Service, i int)
	// dualStack is set for Services of both families, rather than of IPv4.
	dualStack bool
	// staleFlows is set if stale UDP flows are cleaned and NodePorts listen on
	// many addresses.
	staleFlows bool
}

// nodePortAddresses is the number of addresses on which NodePorts listen if a
// feature cleans stale flows.
const nodePortAddresses = 500

func features() []*feature {
	return []*feature{{
		name: "services", about: "Services with 10 endpoints", size: 10_000, shape: services(10),
	}, {
		name: "affinity", about: "Services with session affinity and 10 endpoints", size: 2_000, shape: services(10),
		use: func(svc *cluster.Service, _ int) { svc.AffinityTimeout = 3 * time.Hour },
	}, {
		name: "source-ranges", about: "LoadBalancers with 50 source ranges and 2 endpoints", size: 1_000, shape: services(2),
		use: func(svc *cluster.Service, i int) { loadBalancer(svc, i, 50) },
	}, {
		name: "local", about: "LoadBalancers with externalTrafficPolicy Local, a NodePort and 10 endpoints, 2 on this node",
		size: 2_000, shape: services(10),
		use: func(svc *cluster.Service, i int) {
			loadBalancer(svc, i, 0)
			svc.ExternalPolicy, svc.Ports[0].NodePort = cluster.PolicyLocal, nodePort(i)
		},
	}, {
		name:  "guarded-local",
		about: "LoadBalancers with externalTrafficPolicy Local, 5 source ranges and 2 endpoints, 1 on this node",
		size:  1_000, shape: services(2),
		use: func(svc *cluster.Service, i int) {
			loadBalancer(svc, i, 5)
			svc.ExternalPolicy = cluster.PolicyLocal
		},
	}, {
		name: "endpoints", about: "endpoints of one Service", size: 5_000,
		shape: func(n int) (int, int, int) { return 1, 1, n },
	}, {
		name: "ports", about: "ports of one Service with 100 endpoints", size: 500,
		shape: func(n int) (int, int, int) { return 1, n, 100 },
	}, {
		name: "udp-nodeports", about: fmt.Sprintf("UDP NodePorts on %d addresses with 10 endpoints", nodePortAddresses),
		size: 500, shape: services(10), staleFlows: true,
		use: func(svc *cluster.Service, i int) {
			svc.Ports[0].Protocol, svc.Ports[0].NodePort = cluster.UDP, nodePort(i)
		},
	}, {
		name: "dual-stack", about: "dual-stack Services with 10 endpoints in each family", size: 5_000, shape: services(10),
		dualStack: true,
	}}
}

func (f *feature) families() []nft.Family {
	if f.dualStack {
		return []nft.Family{nft.IPv4, nft.IPv6}
	}
	return []nft.Family{nft.IPv4}
}

// services is the shape of a feature whose Services are counted.
func services(endpoints int) func(int) (int, int, int) {
	return func(n int) (int, int, int) { return n, 1, endpoints }
}

func nodePort(i int) uint16 { return uint16(30_000 + i) }

// loadBalancer gives a Service a LoadBalancer IP, and source ranges unless the
// number of these is 0.
func loadBalancer(svc *cluster.Service, i, ranges int) {
	svc.LoadBalancerIPs = []netip.Addr{address(nft.IPv4, loadBalancerIPs, i)}
	for r := range ranges {
		// Every other /16, so that ranges are not adjacent.
		svc.SourceRanges = append(svc.SourceRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(2 * r)}), 16))
	}
}

func featureNames() (names []string) {
	for _, f := range features() {
		names = append(names, f.name)
	}
	return names
}

// The networks of addresses, in both families: 10.96.0.5 is fd00::a60:5 in
// IPv6.
const (
	clusterIPs      = 10<<24 | 96<<16
	endpointIPs     = 10<<24 | 128<<16
	nodeIPs         = 172<<24 | 20<<16
	loadBalancerIPs = 198<<24 | 18<<16
)

// featureOf returns the feature of a name, or nil.
func featureOf(name string) *feature {
	i := slices.Index(featureNames(), name)
	if i < 0 {
		return nil
	}
	return features()[i]
}

// address returns address number i, from 0, of a network.
func address(f nft.Family, network, i int) netip.Addr {
	a := [16]byte{0: 0xfd}
	binary.BigEndian.PutUint32(a[12:], uint32(network+i+1))
	if f == nft.IPv4 {
		return netip.AddrFrom4([4]byte(a[12:]))
	}
	return netip.AddrFrom16(a)
}

// podCIDRs returns the ranges of all endpoints.
func podCIDRs() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("fd00::a80:0/105")}
}

// workload is the Services of a feature, and a plain one.
type workload struct {
	services []*service // the plain Service is the last one
	last     int        // number of the last endpoint that was added
}

// newWorkload returns a feature's Services for n objects.
func newWorkload(f *feature, n int) *workload {
	count, ports, endpoints := f.shape(n)
	w := new(workload)
	for i := range count {
		s := w.newService(f, i, ports, endpoints)
		if f.use != nil {
			f.use(s.spec, i)
		}
	}
	w.newService(f, count, 1, plainEndpoints)
	return w
}

// next returns the number of a new endpoint, which is on this node.
func (w *workload) next() int {
	w.last += localEvery - w.last%localEvery
	return w.last
}

// handOver hands over all Services and endpoints.
func (w *workload) handOver(to receiver) {
	for _, s := range w.services {
		to.SetService(s.spec)
		for k := range s.slices {
			s.handOver(to, k)
		}
	}
}

const (
	nodeName = "node1"
	// plainEndpoints is the number of endpoints of the plain Service.
	plainEndpoints = 10
	// localEvery is the share of endpoints on this node: one in five. It
	// matters where a traffic policy is Local.
	localEvery = 5
	// sliceSize is the number of endpoints that the control plane puts into an
	// EndpointSlice.
	sliceSize = 100
)

// service is a Service with its endpoints.
type service struct {
	spec *cluster.Service
	// slices are the numbers of the endpoints in each EndpointSlice, ascending.
	slices [][]int
	// victim is the endpoint to replace next. It is on this node.
	victim int
}

// newService adds the plain Service number i.
func (w *workload) newService(f *feature, i, ports, endpoints int) *service {
	spec := &cluster.Service{
		Name:     cluster.ServiceName{Namespace: "features", Name: fmt.Sprintf("service-%d", i)},
		Families: f.families(),
	}
	for _, family := range spec.Families {
		spec.ClusterIPs = append(spec.ClusterIPs, address(family, clusterIPs, i))
	}
	for p := range ports {
		spec.Ports = append(spec.Ports, cluster.ServicePort{
			Name: fmt.Sprintf("port-%d", p), Protocol: cluster.TCP, Port: uint16(1000 + p),
		})
	}
	s := &service{spec: spec, victim: w.next()}
	s.add(s.victim)
	for range endpoints - 1 {
		w.last++
		s.add(w.last)
	}
	w.services = append(w.services, s)
	return s
}

// add adds an endpoint, whose number is the largest so far, and returns the
// index of its EndpointSlice.
func (s *service) add(endpoint int) (k int) {
	k = slices.IndexFunc(s.slices, func(slice []int) bool { return len(slice) < sliceSize })
	if k < 0 {
		k = len(s.slices)
		s.slices = append(s.slices, nil)
	}
	s.slices[k] = append(s.slices[k], endpoint)
	return k
}

// remove removes an endpoint and returns the index of its EndpointSlice.
func (s *service) remove(endpoint int) (k int) {
	k = slices.IndexFunc(s.slices, func(slice []int) bool { return slices.Contains(slice, endpoint) })
	s.slices[k] = slices.DeleteFunc(s.slices[k], func(e int) bool { return e == endpoint })
	return k
}

// replace replaces an endpoint by one of a larger number, in the same slice.
func (s *service) replace(old, endpoint int) (k int) {
	k = s.remove(old)
	s.slices[k] = append(s.slices[k], endpoint)
	return k
}

// handOver hands over the EndpointSlice of an index, of each family.
func (s *service) handOver(to receiver, k int) {
	ports := make([]cluster.EndpointPort, len(s.spec.Ports))
	for i, p := range s.spec.Ports {
		ports[i] = cluster.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: 8000 + uint16(i)}
	}
	for _, f := range s.spec.Families {
		source := fmt.Sprintf("%s-%s-%d", s.spec.Name.Name, f, k)
		var endpoints []*cluster.Endpoint
		for _, e := range s.slices[k] {
			node := "other"
			if e%localEvery == 0 {
				node = nodeName
			}
			endpoints = append(endpoints, &cluster.Endpoint{
				EndpointKey: cluster.EndpointKey{Source: source, Addr: address(f, endpointIPs, e)},
				Ports:       ports, Node: node, Ready: true, Serving: true,
			})
		}
		to.SetEndpoints(s.spec.Name, source, endpoints)
	}
}
