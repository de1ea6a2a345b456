package socket

import (
	"net/netip"
	"slices"
)

// Service is the state of a Service that the proxy serves, in all address
// families.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// InternalPolicy applies to ClusterIPs, ExternalPolicy to all other
	// frontends: Cluster or Local.
	InternalPolicy string `json:"internalTrafficPolicy"`
	ExternalPolicy string `json:"externalTrafficPolicy"`
	// AffinitySeconds is the timeout of session affinity, 0 without affinity.
	AffinitySeconds int `json:"affinitySeconds,omitempty"`
	// HealthCheckNodePort is 0 if there is none.
	HealthCheckNodePort uint16 `json:"healthCheckNodePort,omitempty"`
	// SourceRanges are loadBalancerSourceRanges. They have no meaning unless
	// Restricted is true: then only these clients may use the LoadBalancer IPs
	// of a family, unless it is Unrestricted.
	Restricted   bool           `json:"restricted,omitempty"`
	SourceRanges []netip.Prefix `json:"sourceRanges,omitempty"`
	// Pending reports whether a change of the Service is not in the kernel yet.
	Pending bool          `json:"pending,omitempty"`
	Ports   []ServicePort `json:"ports"`
	// Reductions are how the Service exceeds a budget of rows, by family.
	Reductions map[string]string `json:"reductions,omitempty"`
}

// Unrestricted reports whether all clients of a family may use the LoadBalancer
// IPs because all source ranges are of the other family.
func (s *Service) Unrestricted(family string) bool {
	ofFamily := func(p netip.Prefix) bool { return p.Addr().Is4() == (family == "IPv4") }
	return len(s.SourceRanges) > 0 && !slices.ContainsFunc(s.SourceRanges, ofFamily)
}

// ServicePort is one port of a Service.
type ServicePort struct {
	// Name is the name of the port in the Service, often "".
	Name string `json:"name,omitempty"`
	// Protocol is tcp, udp or sctp.
	Protocol  string     `json:"protocol"`
	Port      uint16     `json:"port"`
	Frontends []Frontend `json:"frontends"`
	// Endpoints are those of all address families. They are listed if the query
	// names the Service.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Frontend is an address and port at which clients reach a service port. A
// NodePort is a frontend in each address family of the Service.
type Frontend struct {
	// Family is IPv4 or IPv6.
	Family string       `json:"family"`
	Kind   FrontendKind `json:"kind"`
	// Address is zero for a NodePort.
	Address netip.Addr `json:"address,omitzero"`
	// Addresses are those on which a NodePort listens, if the query names the
	// Service. The unspecified address stands for all addresses of the node.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Port      uint16       `json:"port"`
	// Policy is the traffic policy that applies: Cluster or Local.
	Policy string        `json:"policy"`
	State  FrontendState `json:"state"`
	// UsedEndpoints is the number of endpoints of its address family that
	// traffic with its policy uses. AllEndpoints includes those that are not
	// ready, but no duplicates. In state Refused, UsedEndpoints is the number
	// of endpoints of the last rules.
	UsedEndpoints int `json:"usedEndpoints"`
	AllEndpoints  int `json:"allEndpoints"`
	// Owner is the namespace/name:port that owns the frontend in state
	// Conflict.
	Owner string `json:"owner,omitempty"`
	// Error is the reason why the service port cannot be updated in state
	// Refused.
	Error string `json:"error,omitempty"`
}

// FrontendKind is the kind of a frontend's address.
type FrontendKind string

// The kinds of frontends.
const (
	ClusterIP      FrontendKind = "ClusterIP"
	NodePort       FrontendKind = "NodePort"
	ExternalIP     FrontendKind = "ExternalIP"
	LoadBalancerIP FrontendKind = "LoadBalancerIP"
)

// FrontendState is what happens to new connections to a frontend.
type FrontendState string

// The states of frontends.
const (
	// Served means that they reach an endpoint.
	Served FrontendState = "Served"
	// NoEndpoints means that they are rejected: no endpoint on any node can be
	// used.
	NoEndpoints FrontendState = "NoEndpoints"
	// NoLocalEndpoints means that they are dropped: the policy is Local, and no
	// endpoint on this node can be used. If the frontend is not a ClusterIP,
	// pods of the cluster and this node can use all endpoints nevertheless.
	NoLocalEndpoints FrontendState = "NoLocalEndpoints"
	// Conflicting means that another service port owns the frontend.
	Conflicting FrontendState = "Conflict"
	// Refused means that the service port cannot be updated, for example
	// because the kernel refused one of its rows. Connections reach the
	// endpoints that are left of its last rules, or are rejected if there are
	// none.
	Refused FrontendState = "Refused"
)

// Endpoint is an endpoint of a service port, whether it is used or not.
type Endpoint struct {
	Address netip.Addr `json:"address"`
	// Port is 0 if the endpoint does not have the port.
	Port uint16 `json:"port,omitempty"`
	// Node is the node of the endpoint, "" if it is unknown. OnThisNode reports
	// whether it is this node.
	Node       string `json:"node,omitempty"`
	OnThisNode bool   `json:"onThisNode"`
	// Slice is the name of the EndpointSlice.
	Slice       string `json:"endpointSlice"`
	Ready       bool   `json:"ready"`
	Serving     bool   `json:"serving"`
	Terminating bool   `json:"terminating"`
	// Zones and Nodes are those whose clients should use the endpoint (hints).
	Zones []string `json:"hintedZones,omitempty"`
	Nodes []string `json:"hintedNodes,omitempty"`
	// Cluster and Local are how traffic with policy Cluster and Local uses the
	// endpoint.
	Cluster Use `json:"cluster"`
	Local   Use `json:"local"`
}

// Use is whether an endpoint is used, and if not, why.
type Use struct {
	Used bool `json:"used"`
	// Reason identifies the reason: a ruleset.Unused. Text is a sentence
	// without a period, such as "not ready".
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
}
