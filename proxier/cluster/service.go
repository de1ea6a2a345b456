package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// ServiceName identifies a Service.
type ServiceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns namespace/name.
func (n ServiceName) String() string { return n.Namespace + "/" + n.Name }

// Compare orders names by namespace, then by name.
func (n ServiceName) Compare(o ServiceName) int {
	return cmp.Or(strings.Compare(n.Namespace, o.Namespace), strings.Compare(n.Name, o.Name))
}

// WithPort returns the name of a service port.
func (n ServiceName) WithPort(port string) PortName { return PortName{n, port} }

// PortName identifies a service port. Port is its name in the Service, often
// "".
type PortName struct {
	ServiceName
	Port string
}

// String returns namespace/name:port, or namespace/name for a port without a
// name.
func (n PortName) String() string {
	if n.Port == "" {
		return n.ServiceName.String()
	}
	return n.ServiceName.String() + ":" + n.Port
}

// Compare orders service ports by Service, then by name.
func (n PortName) Compare(o PortName) int {
	return cmp.Or(n.ServiceName.Compare(o.ServiceName), strings.Compare(n.Port, o.Port))
}

// Protocol is a transport protocol. Its value is the IP protocol number.
type Protocol uint8

// The protocols that a service port can have.
const (
	TCP  Protocol = unix.IPPROTO_TCP
	UDP  Protocol = unix.IPPROTO_UDP
	SCTP Protocol = unix.IPPROTO_SCTP
)

// String returns the protocol's name in nft syntax.
func (p Protocol) String() string { return nfnetlink.ProtocolName(uint8(p)) }

// MarshalText implements encoding.TextMarshaler with String.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Protocol) UnmarshalText(text []byte) (err error) {
	*p, err = ParseProtocol(string(text))
	return err
}

// Protocols returns all protocols.
func Protocols() []Protocol { return []Protocol{TCP, UDP, SCTP} }

// ParseProtocol returns the protocol with a name: tcp, udp or sctp.
func ParseProtocol(name string) (Protocol, error) {
	for _, p := range Protocols() {
		if p.String() == name {
			return p, nil
		}
	}
	return 0, fmt.Errorf("protocol %q is unknown: want tcp, udp or sctp", name)
}

// Service holds the fields of a Service that a proxy needs
// (k8s.io/api/core/v1.ServiceSpec and ServiceStatus).
type Service struct {
	Name ServiceName
	// UID distinguishes Services of the same name over time. Only events use
	// it.
	UID string
	// Created is the creation time, zero if it is not known. If two Services
	// claim the same address and port, the older one gets it, and the one that
	// claimed it first if one age is not known.
	Created time.Time
	// Families are the address families of the Service.
	Families []nft.Family
	// ClusterIPs are the virtual addresses of the Service.
	ClusterIPs []netip.Addr
	// ExternalIPs are addresses that the cluster does not manage, and that are
	// routed to this node (spec.externalIPs).
	ExternalIPs []netip.Addr
	// LoadBalancerIPs are addresses of a load balancer that keeps the
	// destination address of packets (ipMode VIP, KEP-1860).
	LoadBalancerIPs []netip.Addr
	// SourceRanges restrict the clients of LoadBalancerIPs. nil allows all
	// clients; an empty slice that is not nil allows none.
	SourceRanges []netip.Prefix
	// InternalPolicy applies to ClusterIPs, ExternalPolicy to all other
	// addresses and to NodePorts.
	InternalPolicy, ExternalPolicy Policy
	// AffinityTimeout is how long a client keeps its endpoint after its last
	// connection. 0 means no session affinity.
	AffinityTimeout time.Duration
	// Balance selects the endpoint of a new connection. It is BalanceRandom
	// with session affinity.
	Balance Balance
	// HashTableSize is the number of rows of the hash table from which a hash,
	// or weights, select an endpoint. 0 means the default of the proxy.
	HashTableSize int
	// Retry reports whether connections without an answer draw another
	// endpoint.
	Retry Retry
	// HealthCheckNodePort is the port on which load balancers check whether
	// this node has endpoints. 0 means none.
	HealthCheckNodePort uint16
	// Metrics reports whether the connections of the Service are counted, if
	// the proxy counts connections of selected Services.
	Metrics bool
	// NoEject reports whether new connections do not avoid endpoints that do
	// not answer.
	NoEject bool
	// HealthCheck is how this node checks the TCP endpoints of the Service. nil
	// means not at all.
	HealthCheck *HealthCheck
	Ports       []ServicePort
	// Selector is the selector of pods as text, "" if there is none. It
	// explains why a Service has no endpoints.
	Selector string
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
	NodePort uint16 // 0: none
	// TargetName is the name of the port of pods, "" if targetPort is a number.
	// It explains why endpoints do not have the port.
	TargetName string
}

// Retry reports whether connections without an answer draw another endpoint.
type Retry uint8

// The values of Retry. RetryDefault means that they do unless they are UDP
// flows to another port than that of DNS.
const (
	RetryDefault Retry = iota
	RetryOn
	RetryOff
)

// Policy is a traffic policy: it selects the endpoints that traffic may use.
type Policy uint8

// The traffic policies of Kubernetes.
const (
	PolicyCluster Policy = iota // all endpoints
	PolicyLocal                 // endpoints on this node
)

var policyNames = []string{"Cluster", "Local"}

// String returns the policy as in the API: Cluster or Local.
func (p Policy) String() string { return policyNames[p] }

// MarshalText implements encoding.TextMarshaler with String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Policy) UnmarshalText(text []byte) error {
	i := slices.Index(policyNames, string(text))
	if i < 0 {
		return fmt.Errorf("%q is neither Cluster nor Local", text)
	}
	*p = Policy(i)
	return nil
}
