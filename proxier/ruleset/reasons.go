package ruleset

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// All reasons of packets and endpoints that people and programs read are in
// this file and in codes.go: their codes, their texts, and their remedies,
// except the texts and remedies of why a packet is not delivered (package
// route).

// Code identifies a reason for the fate of a packet, or why an endpoint is not
// used. It does not change between versions.
type Code string

// Reasons for which new connections are rejected or dropped. A counter counts
// their packets. It belongs to a chain of the same name, which maps and rules
// lead to, so that a trace of a packet names the reason. SourceRange has no
// such chain: its counter is in the firewall chains.
const (
	NoEndpoints        Code = "NoEndpoints"        // on any node
	NoLocalEndpoints   Code = "NoLocalEndpoints"   // on this node, with a traffic policy Local
	NoWeight           Code = "NoWeight"           // all endpoints have weight 0
	UnknownPort        Code = "UnknownPort"        // of a ClusterIP
	UnallocatedAddress Code = "UnallocatedAddress" // of a service CIDR
	SourceRange        Code = "SourceRange"        // loadBalancerSourceRanges exclude the client
)

// Reasons that are more precise than NoEndpoints and NoWeight (see Lack).
const (
	NoPods          Code = "NoPods"          // that match the selector
	NoSlices        Code = "NoSlices"        // with an endpoint, and no selector
	OtherFamily     Code = "OtherFamily"     // of all endpoints
	MissingPort     Code = "MissingPort"     // in all EndpointSlices
	AllTerminating  Code = "AllTerminating"  // and none serves
	NoneReady       Code = "NoneReady"       // of the endpoints
	HintedElsewhere Code = "HintedElsewhere" // are the endpoints with a weight
)

// Reasons for which the receiver of a connection sees an address of this node
// instead of the client's.
const (
	OutsideCluster Code = "OutsideCluster" // a client outside the cluster uses a ClusterIP
	MasqueradeAll  Code = "MasqueradeAll"  // as configured
	ExternalPolicy Code = "ExternalPolicy" // externalTrafficPolicy Cluster
	FromNode       Code = "FromNode"       // this node is the client
	Hairpin        Code = "Hairpin"        // the endpoint is the client
)

// Other reasons of packets, which their way through the rules shows.
const (
	NoService    Code = "NoService"    // no Service has the address
	HealthCheck  Code = "HealthCheck"  // a health-check NodePort
	Localhost    Code = "Localhost"    // a loopback address
	Damaged      Code = "Damaged"      // rows are missing
	Unexplained  Code = "Unexplained"  // by a rule that is not nftproxy's
	OtherTable   Code = "OtherTable"   // a rule of another table
	Untranslated Code = "Untranslated" // a connection that is known and was not translated
	NotReported  Code = "NotReported"  // by any rule
	Unanswered   Code = "Unanswered"   // a repeated packet

	NetworkPolicy Code = "NetworkPolicy" // a rule of another table that looks like one
	LegacyRules   Code = "LegacyRules"   // of iptables, which report no packets
	IPsec         Code = "IPsec"         // policies of the kernel
	ConntrackFull Code = "ConntrackFull" // no entry is left for the connection
)

// Reasons why this node does not deliver a packet after its translation, or the
// answer.
const (
	NoRoute         Code = "NoRoute"         // to the endpoint or the client
	RouteForbids    Code = "RouteForbids"    // a route of type blackhole, prohibit or unreachable
	ForwardingOff   Code = "ForwardingOff"   // ip_forward
	ReversePath     Code = "ReversePath"     // rp_filter
	MartianSource   Code = "MartianSource"   // an address of this node
	RouteRefused    Code = "RouteRefused"    // for another reason
	NoCarrier       Code = "NoCarrier"       // of the interface to the endpoint
	SilentNeighbour Code = "SilentNeighbour" // does not answer ARP or neighbour discovery
)

// Reasons why an endpoint is not used.
const (
	UnusedServiceCIDR Code = "ServiceCIDR" // the address is in a service CIDR
	UnusedNoPort      Code = "NoPort"      // the endpoint does not have the port
	UnusedDuplicate   Code = "Duplicate"   // an equal endpoint is used instead
	UnusedNotReady    Code = "NotReady"
	UnusedTerminating Code = "Terminating" // while others are ready, or without serving
	UnusedOtherNode   Code = "OtherNode"   // policy Local
	UnusedNodeHints   Code = "NodeHints"   // hints select endpoints for this node
	UnusedZoneHints   Code = "ZoneHints"   // hints select endpoints for the zone of this node
	UnusedWeight      Code = "Weight"      // the weight is 0
	UnusedEjected     Code = "Ejected"     // it answers nothing, or fails health checks
	UnusedBudget      Code = "Budget"      // the budget of the Service or of its namespace (see Budgets)
)

// Reasons why a frontend is not served as its Service wants, in the state of
// table.FrontendView. With Waiting and Refused, connections reach the endpoints
// that are left of the last rules of the service port, or are rejected if there
// are none.
const (
	Conflict Code = "Conflict" // another service port owns it
	Waiting  Code = "Waiting"  // a change failed, and the next sync tries it again
	Refused  Code = "Refused"  // a change failed, until the Service changes or a resync
)

// Facts are what the text of a reason mentions.
type Facts struct {
	Source      netip.Addr
	Destination netip.AddrPort
	Protocol    cluster.Protocol
	// ServicePort is the namespace/name:port that owns the destination, "" if
	// none does.
	ServicePort string
	// HealthCheck is what the proxy answers at a health-check NodePort.
	HealthCheck string
	// Target is the chain to which the last row that the packet found leads.
	Target string
	// Chain is the chain of the rule that decided, "" if none did.
	Chain string
	// Masqueraded asks for the reason why the packet is masqueraded.
	Masqueraded bool
	// Failure is why the proxy cannot serve a NodePort on localhost.
	Failure string
	// Trace is what a trace saw of a packet that another table stopped, or that
	// no rule reported any more.
	Trace string
}

// Text returns the reason for people, as a sentence without a period.
func (r Code) Text(f Facts) string {
	switch r {
	case NoEndpoints:
		return f.ServicePort + " has no ready endpoint on any node"
	case NoLocalEndpoints:
		policy := "externalTrafficPolicy"
		if f.Target == r.name() { // the row of a ClusterIP leads there at once
			policy = "internalTrafficPolicy"
		}
		return fmt.Sprintf("%s has %s Local and no ready endpoint on this node", f.ServicePort, policy)
	case NoWeight:
		return "all ready endpoints of " + f.ServicePort + " that the client may use have weight 0"
	case UnknownPort:
		return fmt.Sprintf("%s is a ClusterIP, but its Service has no port %d/%s",
			f.Destination.Addr(), f.Destination.Port(), f.Protocol)
	case UnallocatedAddress:
		return fmt.Sprintf("%s is in a service CIDR, but no Service has it", f.Destination.Addr())
	case SourceRange:
		return fmt.Sprintf("loadBalancerSourceRanges of %s do not include %s", f.ServicePort, f.Source)
	case NoService:
		return fmt.Sprintf("no Service has %s/%s", f.Destination, f.Protocol)
	case HealthCheck:
		return fmt.Sprintf("healthCheckNodePort of %s: the proxy itself answers %s", f.ServicePort, f.HealthCheck)
	case Localhost:
		return f.localhost()
	case Damaged:
		return "the table has no row with an endpoint of " + f.ServicePort
	case Unexplained:
		return f.unexplained()
	case OtherTable, NetworkPolicy, NotReported:
		return f.Trace
	}
	return cmp.Or(reasonTexts[r], string(r))
}

var reasonTexts = map[Code]string{
	OutsideCluster: "the client is not recognized as a pod of the cluster",
	MasqueradeAll:  "masqueradeAll is configured",
	ExternalPolicy: "externalTrafficPolicy is Cluster",
	FromNode:       "the client is this node",
	Hairpin:        "the client is the endpoint",
	Unanswered:     "the connection is known, and the endpoint has not answered yet",
	Untranslated:   "the connection is known from before and is not translated, or it is not tracked",

	UnusedServiceCIDR: "the address is in a service CIDR",
	UnusedNoPort:      "the endpoint does not have the port",
	UnusedDuplicate:   "another endpoint has the same address and port",
	UnusedNotReady:    "not ready",
	UnusedTerminating: "terminating",
	UnusedOtherNode:   "on another node",
	UnusedNodeHints:   "hints select other nodes",
	UnusedZoneHints:   "hints select other zones",
	UnusedWeight:      "the weight is 0",
	UnusedEjected:     "ejected, because it does not answer or fails health checks",
	UnusedBudget:      "the rows of the Service or of its namespace exceed the budget",
}

func (f *Facts) localhost() string {
	switch {
	case f.Masqueraded:
		return "the proxy itself forwards connections to NodePorts on localhost"
	case f.Failure != "":
		return "the proxy cannot serve the NodePort: " + f.Failure
	case f.Chain != "":
		return fmt.Sprintf("localhost does not serve NodePorts of %s", f.Protocol)
	}
	return "rules do not translate packets to localhost; a program on this node answers"
}

func (f *Facts) unexplained() string {
	switch {
	case f.Masqueraded:
		return fmt.Sprintf("a rule of chain %s marks the packet", f.Chain)
	case f.Chain != "":
		return fmt.Sprintf("a rule of chain %s ends the walk", f.Chain)
	}
	return "no rule of the proxy decides"
}

// Refusals returns the reasons for which new connections are rejected or
// dropped.
func Refusals() []Code {
	return []Code{NoEndpoints, NoLocalEndpoints, NoWeight, UnknownPort, UnallocatedAddress, SourceRange}
}

// name returns the name of the counter of a refusal, and of its chain.
func (r Code) name() string { return refusalNames[r] }

var refusalNames = map[Code]string{
	NoEndpoints:        "reject-no-endpoints",
	NoLocalEndpoints:   "drop-no-local-endpoints",
	NoWeight:           "reject-no-weight",
	UnknownPort:        "reject-unknown-port",
	UnallocatedAddress: "drop-unallocated-address",
	SourceRange:        "drop-source-range",
}

// Rejects reports whether the packets of a refusal are rejected. Otherwise they
// are dropped.
func (r Code) Rejects() bool { return r == NoEndpoints || r == NoWeight || r == UnknownPort }

// Counter returns the counter of the packets of a refusal. A client that gets
// no answer repeats its packet, and each of them is counted.
func (r Code) Counter() *nft.Counter { return &nft.Counter{Name: r.name()} }

// Reach is what new connections to a frontend meet: the only answer to this
// question for rows, views, statistics and health checks.
type Reach struct {
	// Endpoints is the number of endpoints that they can reach.
	Endpoints int
	// Reason is the reason why they reach none: NoEndpoints, NoLocalEndpoints
	// or NoWeight. It is "" if they reach one.
	Reason Code
}

// Reach returns what new connections to the frontends with a traffic policy
// meet. If the policy is Local and the frontend is not a ClusterIP, this
// concerns clients outside the cluster: pods of the cluster and this node meet
// the Reach of the policy Cluster. A nil plan has no endpoints.
func (p *Plan) Reach(policy cluster.Policy) Reach {
	if p == nil || len(p.Cluster) == 0 {
		return Reach{Reason: NoEndpoints}
	}
	l := p.list(policy)
	n := l.reachable()
	switch {
	case len(l.targets) == 0:
		return Reach{Reason: NoLocalEndpoints}
	case n == 0:
		return Reach{Reason: NoWeight}
	}
	return Reach{Endpoints: n}
}
