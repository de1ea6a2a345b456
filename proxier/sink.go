package proxier

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Sink is the seam between where the cluster's state comes from and what is done with it. A source calls
// Setup once, then tells what is there and what changes, and calls Sync when what it told so far belongs together;
// nothing is done before. The Kubernetes front end of this package is one source; any other program can be one too.
//
// Setting what is there already is no change, deleting what is not there is no error. What is handed over
// must not be modified afterwards. Calls come from one goroutine at a time.
type Sink interface {
	// Setup gets the sink ready to sync. It is called once, first.
	Setup() error
	// SetNode tells what is to be known about this node.
	SetNode(*Node)
	// SetService adds a Service or replaces the one of the same name.
	SetService(*Service)
	// DeleteService removes a Service. Its endpoints stay until they are deleted themselves.
	DeleteService(ServiceName)
	// SetEndpoints tells all endpoints that a Service, known or yet to come, has from one source, whose Source is that, in ascending order of their
	// addresses, each once. It costs less than to tell many endpoints of a Service one by one.
	SetEndpoints(name ServiceName, source string, endpoints []*Endpoint)
	// SetEndpoint adds an endpoint to a Service, known or yet to come, or replaces the one of the same key.
	SetEndpoint(ServiceName, *Endpoint)
	// DeleteEndpoint removes an endpoint from a Service.
	DeleteEndpoint(ServiceName, EndpointKey)
	// Sync carries out what was told. After an error the sink still works by the state before, in whole or in part, and
	// the next Sync tries again.
	Sync() error
	// Reset forgets all that was told, in order to be told everything anew. Nothing is carried out until the next Sync.
	Reset()
}

// Node is what is to be known about this node.
type Node struct {
	// Name is the name by which endpoints and hints refer to this node.
	Name string
	// Zone is the node's zone (label topology.kubernetes.io/zone), "" if it has none.
	Zone string
	// IPs are the node's primary addresses, at most one a family.
	IPs []netip.Addr
	// PodCIDRs are the address ranges of this node's pods.
	PodCIDRs []netip.Prefix
	// ServiceCIDRs are the ranges from which ClusterIPs are taken.
	ServiceCIDRs []netip.Prefix
	// NodePortIPs are the local addresses on which NodePorts listen, if Config.NodePortAddresses asks for some only.
	NodePortIPs []netip.Addr
}

// ServiceName names a Service.
type ServiceName struct{ Namespace, Name string }

// String returns namespace/name.
func (n ServiceName) String() string { return n.Namespace + "/" + n.Name }

// Protocol is a transport protocol; its value is the IP protocol number.
type Protocol uint8

// The protocols that service ports can have.
const (
	TCP  Protocol = unix.IPPROTO_TCP
	UDP  Protocol = unix.IPPROTO_UDP
	SCTP Protocol = unix.IPPROTO_SCTP
)

// String returns the protocol as nft names it.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// Service is a Service as far as a proxy needs to know it (k8s.io/api/core/v1.ServiceSpec, .ServiceStatus).
type Service struct {
	Name ServiceName
	// UID tells a Service from one of the same name before it; only events show it.
	UID string
	// Created decides, where two Services want the same address and port: the older one has it.
	Created time.Time
	// Families are the address families of the Service.
	Families []nft.Family
	// ClusterIPs are the Service's own addresses.
	ClusterIPs []netip.Addr
	// ExternalIPs are addresses outside of the cluster that reach this node by means of others.
	ExternalIPs []netip.Addr
	// LoadBalancerIPs are addresses of a load balancer that hands packets on without changing their destination (ipMode VIP).
	LoadBalancerIPs []netip.Addr
	// SourceRanges say who may use LoadBalancerIPs. nil: everybody. Empty, but not nil: nobody.
	SourceRanges []netip.Prefix
	// InternalPolicy applies to ClusterIPs, ExternalPolicy to all other addresses and NodePorts.
	InternalPolicy, ExternalPolicy Policy
	// AffinityTimeout is how long after its last connection a client keeps its endpoint. 0: no session affinity.
	AffinityTimeout time.Duration
	// HealthCheckNodePort is where load balancers ask whether this node has endpoints, 0 if nowhere.
	HealthCheckNodePort uint16
	Ports               []ServicePort
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
	NodePort uint16 // 0: none
}

// Policy says which endpoints traffic may go to.
type Policy uint8

// The traffic policies of Kubernetes.
const (
	PolicyCluster Policy = iota // endpoints anywhere
	PolicyLocal                 // endpoints on this node
)

// EndpointKey tells an endpoint from the others of its Service.
type EndpointKey struct {
	// Source is the part of the Service's endpoints that it comes from, as the name of an EndpointSlice.
	Source string
	Addr   netip.Addr
}

// Endpoint is one address behind a Service (k8s.io/api/discovery/v1.Endpoint). The same address and port from two sources
// counts once.
type Endpoint struct {
	EndpointKey
	// Ports are the ports on which the endpoint serves, by the names of service ports.
	Ports []EndpointPort
	// Node is the name of the node that the endpoint is on, "" if that is not known.
	Node string
	// Hints say for whom the endpoint is meant; nil if that is not said.
	Hints *Hints
	// Ready endpoints get traffic. Those that are Serving and Terminating get it where none is ready.
	Ready, Serving, Terminating bool
}

// EndpointPort is a port of an endpoint.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16 // 0: all ports, so that the service port's own number is used
}

// Hints say for which zones and for which nodes an endpoint is meant (KEP-2433, KEP-3015).
type Hints struct{ Zones, Nodes []string }

func (e *Endpoint) equal(o *Endpoint) bool {
	return e.EndpointKey == o.EndpointKey && e.Node == o.Node &&
		e.Ready == o.Ready && e.Serving == o.Serving && e.Terminating == o.Terminating &&
		slices.Equal(e.Ports, o.Ports) && e.Hints.equal(o.Hints)
}

func (h *Hints) equal(o *Hints) bool {
	if h == nil || o == nil {
		return h == o
	}
	return slices.Equal(h.Zones, o.Zones) && slices.Equal(h.Nodes, o.Nodes)
}

// Sinks hands everything on to several sinks, as to one for each address family.
type Sinks []Sink

var _ Sink = Sinks(nil)

// Setup sets up every sink.
func (s Sinks) Setup() error { return s.each(Sink.Setup) }

// Sync syncs every sink, also after one of them failed.
func (s Sinks) Sync() error { return s.each(Sink.Sync) }

func (s Sinks) each(f func(Sink) error) error {
	var errs []error
	for _, sink := range s {
		errs = append(errs, f(sink))
	}
	return errors.Join(errs...)
}

// SetNode hands on to every sink.
func (s Sinks) SetNode(n *Node) {
	for _, sink := range s {
		sink.SetNode(n)
	}
}

// SetService hands on to every sink.
func (s Sinks) SetService(svc *Service) {
	for _, sink := range s {
		sink.SetService(svc)
	}
}

// DeleteService hands on to every sink.
func (s Sinks) DeleteService(name ServiceName) {
	for _, sink := range s {
		sink.DeleteService(name)
	}
}

// SetEndpoints hands on to every sink.
func (s Sinks) SetEndpoints(name ServiceName, source string, endpoints []*Endpoint) {
	for _, sink := range s {
		sink.SetEndpoints(name, source, endpoints)
	}
}

// SetEndpoint hands on to every sink.
func (s Sinks) SetEndpoint(name ServiceName, e *Endpoint) {
	for _, sink := range s {
		sink.SetEndpoint(name, e)
	}
}

// DeleteEndpoint hands on to every sink.
func (s Sinks) DeleteEndpoint(name ServiceName, key EndpointKey) {
	for _, sink := range s {
		sink.DeleteEndpoint(name, key)
	}
}

// Reset resets every sink.
func (s Sinks) Reset() {
	for _, sink := range s {
		sink.Reset()
	}
}
