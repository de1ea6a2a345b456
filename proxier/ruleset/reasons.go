package ruleset

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// All reasons that people and programs read are in this file: their codes,
// which do not change between versions, and their texts.

// Reason is a reason for the fate of a packet.
type Reason string

// Reasons for which new connections are rejected or dropped. A counter counts
// their packets. It belongs to a chain of the same name, which maps and rules
// lead to, so that a trace of a packet names the reason. SourceRange has no
// such chain: its counter is in the firewall chains.
const (
	NoEndpoints        Reason = "NoEndpoints"        // on any node
	NoLocalEndpoints   Reason = "NoLocalEndpoints"   // on this node, with a traffic policy Local
	NoWeight           Reason = "NoWeight"           // all endpoints have weight 0
	UnknownPort        Reason = "UnknownPort"        // of a ClusterIP
	UnallocatedAddress Reason = "UnallocatedAddress" // of a service CIDR
	SourceRange        Reason = "SourceRange"        // loadBalancerSourceRanges exclude the client
)

// Reasons that are more precise than NoEndpoints and NoWeight (see Lack).
const (
	NoPods          Reason = "NoPods"          // that match the selector
	NoSlices        Reason = "NoSlices"        // with an endpoint, and no selector
	OtherFamily     Reason = "OtherFamily"     // of all endpoints
	MissingPort     Reason = "MissingPort"     // in all EndpointSlices
	AllTerminating  Reason = "AllTerminating"  // and none serves
	NoneReady       Reason = "NoneReady"       // of the endpoints
	HintedElsewhere Reason = "HintedElsewhere" // are the endpoints with a weight
)

// Reasons for which the receiver of a connection sees an address of this node
// instead of the client's.
const (
	OutsideCluster Reason = "OutsideCluster" // a client outside the cluster uses a ClusterIP
	MasqueradeAll  Reason = "MasqueradeAll"  // as configured
	ExternalPolicy Reason = "ExternalPolicy" // externalTrafficPolicy Cluster
	FromNode       Reason = "FromNode"       // this node is the client
	Hairpin        Reason = "Hairpin"        // the endpoint is the client
)

// Other reasons of packets, which their way through the rules shows.
const (
	NoService    Reason = "NoService"    // no Service has the address
	HealthCheck  Reason = "HealthCheck"  // a health-check NodePort
	Localhost    Reason = "Localhost"    // a loopback address
	Damaged      Reason = "Damaged"      // rows are missing
	Unexplained  Reason = "Unexplained"  // by a rule that is not nftproxy's
	OtherTable   Reason = "OtherTable"   // a rule of another table
	Untranslated Reason = "Untranslated" // a connection that is known and was not translated
	NotReported  Reason = "NotReported"  // by any rule
	Unanswered   Reason = "Unanswered"   // a repeated packet

	NetworkPolicy Reason = "NetworkPolicy" // a rule of another table that looks like one
	LegacyRules   Reason = "LegacyRules"   // of iptables, which report no packets
	IPsec         Reason = "IPsec"         // policies of the kernel
	ConntrackFull Reason = "ConntrackFull" // no entry is left for the connection
)

// Reasons why this node does not deliver a packet after its translation, or the
// answer.
const (
	NoRoute         Reason = "NoRoute"         // to the endpoint or the client
	RouteForbids    Reason = "RouteForbids"    // a route of type blackhole, prohibit or unreachable
	ForwardingOff   Reason = "ForwardingOff"   // ip_forward
	ReversePath     Reason = "ReversePath"     // rp_filter
	MartianSource   Reason = "MartianSource"   // an address of this node
	RouteRefused    Reason = "RouteRefused"    // for another reason
	NoCarrier       Reason = "NoCarrier"       // of the interface to the endpoint
	SilentNeighbour Reason = "SilentNeighbour" // does not answer ARP or neighbour discovery
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
func (r Reason) Text(f Facts) string {
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

var reasonTexts = map[Reason]string{
	OutsideCluster: "the client is not recognized as a pod of the cluster",
	MasqueradeAll:  "masqueradeAll is configured",
	ExternalPolicy: "externalTrafficPolicy is Cluster",
	FromNode:       "the client is this node",
	Hairpin:        "the client is the endpoint",
	Unanswered:     "the connection is known, and the endpoint has not answered yet",
	Untranslated:   "the connection is known from before and is not translated, or it is not tracked",
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
func Refusals() []Reason {
	return []Reason{NoEndpoints, NoLocalEndpoints, NoWeight, UnknownPort, UnallocatedAddress, SourceRange}
}

// name returns the name of the counter of a refusal, and of its chain.
func (r Reason) name() string { return refusalNames[r] }

var refusalNames = map[Reason]string{
	NoEndpoints:        "reject-no-endpoints",
	NoLocalEndpoints:   "drop-no-local-endpoints",
	NoWeight:           "reject-no-weight",
	UnknownPort:        "reject-unknown-port",
	UnallocatedAddress: "drop-unallocated-address",
	SourceRange:        "drop-source-range",
}

// Rejects reports whether the packets of a refusal are rejected. Otherwise they
// are dropped.
func (r Reason) Rejects() bool { return r == NoEndpoints || r == NoWeight || r == UnknownPort }

// Counter returns the counter of the packets of a refusal. A client that gets
// no answer repeats its packet, and each of them is counted.
func (r Reason) Counter() *nft.Counter { return &nft.Counter{Name: r.name()} }

// Unused is a reason why an endpoint is not used. It does not change between
// versions.
type Unused string

// Reasons why an endpoint is not used.
const (
	UnusedServiceCIDR Unused = "ServiceCIDR" // the address is in a service CIDR
	UnusedNoPort      Unused = "NoPort"      // the endpoint does not have the port
	UnusedDuplicate   Unused = "Duplicate"   // an equal endpoint is used instead
	UnusedNotReady    Unused = "NotReady"
	UnusedTerminating Unused = "Terminating" // while others are ready, or without serving
	UnusedOtherNode   Unused = "OtherNode"   // policy Local
	UnusedNodeHints   Unused = "NodeHints"   // hints select endpoints for this node
	UnusedZoneHints   Unused = "ZoneHints"   // hints select endpoints for the zone of this node
	UnusedWeight      Unused = "Weight"      // the weight is 0
	UnusedEjected     Unused = "Ejected"     // it answers nothing, or fails health checks
	UnusedBudget      Unused = "Budget"      // the budget of the Service or of its namespace (see Budgets)
)

// unusedJSON is an Unused in JSON.
type unusedJSON struct {
	Used   bool   `json:"used"`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
}

// MarshalJSON implements json.Marshaler: an object with the reason, its text,
// and whether the endpoint is used.
func (u Unused) MarshalJSON() ([]byte, error) {
	return json.Marshal(unusedJSON{u == "", string(u), u.Text()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (u *Unused) UnmarshalJSON(data []byte) error {
	var v unusedJSON
	err := json.Unmarshal(data, &v)
	*u = Unused(v.Reason)
	return err
}

// Text returns the reason for people, as a sentence without a period.
func (u Unused) Text() string { return cmp.Or(unusedTexts[u], string(u)) }

var unusedTexts = map[Unused]string{
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

// Reach is what new connections to a frontend meet: the only answer to this
// question for rows, views, statistics and health checks.
type Reach struct {
	// Endpoints is the number of endpoints that they can reach.
	Endpoints int
	// Reason is the reason why they reach none: NoEndpoints, NoLocalEndpoints
	// or NoWeight. It is "" if they reach one.
	Reason Reason
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
