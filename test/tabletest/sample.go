package tabletest

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Prefixes parses CIDRs.
func Prefixes(values ...string) (all []netip.Prefix) {
	for _, v := range values {
		all = append(all, netip.MustParsePrefix(v))
	}
	return all
}

// Addrs parses addresses.
func Addrs(values ...string) (all []netip.Addr) {
	for _, v := range values {
		all = append(all, netip.MustParseAddr(v))
	}
	return all
}

// Node returns the node of the sample Services: node1.
func Node() *cluster.Node {
	return &cluster.Node{
		Name: "node1", IPs: Addrs("172.30.0.11", "fd00:30::11"),
		ServiceCIDRs: Prefixes("10.96.0.0/16", "fd00:96::/112"),
	}
}

// Rules returns a configuration with NodePorts on all addresses, and pods in
// 10.244.0.0/16 and fd00:244::/32.
func Rules() ruleset.Config {
	return ruleset.Config{
		AffinitySeed:      75,
		RetryAfter:        time.Second,
		NodePortAddresses: ruleset.NodePortAddresses{CIDRs: Prefixes("0.0.0.0/0", "::/0")},
		DetectLocal: ruleset.LocalDetection{
			Mode: ruleset.DetectLocalClusterCIDR, ClusterCIDRs: Prefixes("10.244.0.0/16", "fd00:244::/32"),
		},
	}
}

// Sync syncs a sink until no change waits for its turn.
func Sync(t testing.TB, s cluster.Sink) {
	t.Helper()
	for {
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		table, ok := s.(interface{ Next() (time.Duration, bool) })
		if !ok {
			return
		}
		if wait, waits := table.Next(); !waits || wait > 0 {
			return
		}
	}
}

// Service returns an IPv4 Service ns/name with a TCP port, after change
// modified it. It has no ClusterIP if clusterIP is empty. change can be nil.
func Service(name, clusterIP string, change func(*cluster.Service)) *cluster.Service {
	svc := &cluster.Service{
		Name:     cluster.ServiceName{Namespace: "ns", Name: name},
		Families: []nft.Family{nft.IPv4},
		Ports:    []cluster.ServicePort{{Name: "http", Protocol: cluster.TCP, Port: 80}},
	}
	if clusterIP != "" {
		svc.ClusterIPs = Addrs(clusterIP)
	}
	if change != nil {
		change(svc)
	}
	return svc
}

// Endpoint returns a ready endpoint on node1.
func Endpoint(ip string) *cluster.Endpoint {
	return &cluster.Endpoint{
		EndpointKey: cluster.EndpointKey{Source: "s", Addr: netip.MustParseAddr(ip)},
		Node:        "node1", Ready: true, Serving: true,
		Ports: []cluster.EndpointPort{{Name: "http", Protocol: cluster.TCP, Port: 8080}},
	}
}

// Events records events. It implements cluster.EventRecorder.
type Events []cluster.Event

// Record implements cluster.EventRecorder.
func (e *Events) Record(event cluster.Event) { *e = append(*e, event) }

// ManyEndpoints is the number of endpoints of a numbered Service.
const ManyEndpoints = 10

// NumberedService returns one of many equal Services.
func NumberedService(i int) *cluster.Service {
	ip := netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})
	svc := Service(fmt.Sprintf("service-%d", i), ip.String(), nil)
	svc.Name.Namespace = "bench"
	return svc
}

// NumberedEndpoint returns endpoint i of a numbered Service, on another node.
func NumberedEndpoint(service, i int) *cluster.Endpoint {
	n := service*ManyEndpoints + i
	e := Endpoint(netip.AddrFrom4([4]byte{10, 128 + byte(n>>16), byte(n >> 8), byte(n)}).String())
	e.Source, e.Node = "slice", "other"
	return e
}

// PassNumbered passes numbered Services, each with a number of endpoints.
func PassNumbered(to cluster.Sink, services, endpoints int) {
	for i := range services {
		svc := NumberedService(i)
		to.SetService(svc)
		for e := range endpoints {
			SetEndpoint(to, svc.Name, NumberedEndpoint(0, i*endpoints+e))
		}
	}
}

// Ports returns n TCP ports of a Service, from port 1, and of its endpoints.
func Ports(n int) (ports []cluster.ServicePort, targets []cluster.EndpointPort) {
	for i := range n {
		p := cluster.ServicePort{Name: fmt.Sprintf("p%05d", i), Protocol: cluster.TCP, Port: uint16(1 + i)}
		ports = append(ports, p)
		targets = append(targets, cluster.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	return ports, targets
}

// PassSample passes the node and the sample Services to a sink, as in
// sample-ipv4.nft and sample-ipv6.nft in testdata of package table.
func PassSample(s cluster.Sink) {
	s.SetNode(Node())
	passService(s, "web", "10", nil, "1.5", "2.5", "3.5")
	passService(s, "lb", "20", func(svc *cluster.Service) {
		svc.LoadBalancerIPs = Addrs("192.0.2.10", "2001:db8::10")
		svc.SourceRanges = Prefixes("198.51.100.0/24", "2001:db8:51::/64")
		svc.ExternalPolicy = cluster.PolicyLocal
		svc.Ports[0].NodePort = 30080
	}, "1.6", "2.6")
	passService(s, "ext", "30", func(svc *cluster.Service) {
		svc.ExternalIPs = Addrs("192.0.2.20", "2001:db8::20")
		svc.Ports[0].NodePort = 30090
	}, "1.7", "2.7")
	passService(s, "sticky", "40", func(svc *cluster.Service) { svc.AffinityTimeout = 3 * time.Hour }, "1.8", "2.8")
	passService(s, "none", "50", nil)
	smallTable := func(svc *cluster.Service) { svc.HashTableSize = cluster.MinHashTableSize }
	passService(s, "hashed", "60", func(svc *cluster.Service) {
		smallTable(svc)
		svc.Balance = cluster.BalanceSourceHash
	}, "2.9", "3.9")
	passService(s, "canary", "70", smallTable, "2.10*3", "3.10")
}

// passService passes a dual-stack Service and its endpoints. last is the last
// part of the ClusterIPs. Endpoints are written as node.last or
// node.last*weight.
func passService(s cluster.Sink, name, last string, change func(*cluster.Service), endpoints ...string) {
	svc := Service(name, "", change)
	svc.Name.Namespace = "default"
	svc.Families = []nft.Family{nft.IPv4, nft.IPv6}
	svc.ClusterIPs = Addrs("10.96.0."+last, "fd00:96::"+last)
	s.SetService(svc)
	var all []*cluster.Endpoint
	for _, e := range endpoints {
		node, last, _ := strings.Cut(e, ".")
		last, weight, _ := strings.Cut(last, "*")
		for _, ip := range []string{"10.244." + node + "." + last, "fd00:244:" + node + "::" + last} {
			endpoint := Endpoint(ip)
			endpoint.Source, endpoint.Node = name, "node"+node
			if n, err := strconv.Atoi(weight); err == nil {
				endpoint.Weight = cluster.WeightOf(n)
			}
			all = append(all, endpoint)
		}
	}
	slices.SortFunc(all, func(a, b *cluster.Endpoint) int { return a.Addr.Compare(b.Addr) })
	s.SetEndpoints(svc.Name, name, all)
}

// SetEndpoint passes an endpoint of a Service, from a source of its own.
func SetEndpoint(s cluster.Sink, name cluster.ServiceName, e *cluster.Endpoint) {
	alone := *e
	alone.Source += "/" + e.Addr.String()
	s.SetEndpoints(name, alone.Source, []*cluster.Endpoint{&alone})
}

// DeleteEndpoint deletes an endpoint that SetEndpoint passed.
func DeleteEndpoint(s cluster.Sink, name cluster.ServiceName, key cluster.EndpointKey) {
	s.SetEndpoints(name, key.Source+"/"+key.Addr.String(), nil)
}
