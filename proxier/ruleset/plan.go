package ruleset

import (
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Target is the address and port of an endpoint of a service port.
type Target struct {
	Addr netip.Addr
	Port uint16
	// Here reports whether the endpoint is on this node or its node is unknown.
	Here bool
	// Weight is the weight of the endpoint.
	Weight cluster.Weight
	// ID is the number that identifies the endpoint in the sets of clients with
	// session affinity. It is 0 without affinity.
	ID uint32
	// Group is the number of a group of endpoints of the service port (see
	// sticky), 0 if the endpoint is in none.
	Group uint32
}

// AddrPort returns the address and port of the target.
func (t Target) AddrPort() netip.AddrPort { return netip.AddrPortFrom(t.Addr, t.Port) }

// Plan contains everything that the rows and chains of one service port depend
// on. A Plan is not modified after it was committed.
type Plan struct {
	Service *cluster.Service
	Port    cluster.ServicePort
	// Frontends are those that the service port owns.
	Frontends []ServedFrontend
	// Cluster are the endpoints for traffic with policy Cluster, Local those
	// for traffic with policy Local. If Cluster is empty, so is Local. The
	// position of a target is its index in the rows.
	Cluster, Local []Target
	// Ejected are endpoints that are not in these lists. It is nil in most
	// plans.
	Ejected *Ejected
	// ClusterSlots and LocalSlots are the slots from which hashes or weights
	// select a target, as indexes of Cluster and Local. nil means one row for
	// each target. Slots that are empty but not nil mean that all targets have
	// weight 0.
	ClusterSlots, LocalSlots []uint16
	// Once reports whether a connection without an answer keeps its endpoint,
	// although Config.RetryAfter is not 0.
	Once bool
	// Slots is the number of slots, unless there are more targets.
	Slots int
	// Number identifies the service port in the rows of its targets. It is 0 if
	// they are in the rows of each frontend, or in chains of session affinity.
	Number uint32
	// ClientSet is the number of the affinity set of a service port with
	// session affinity.
	ClientSet uint8
	// Serving are all endpoints that established flows of UDP, and attempts to
	// connect by other protocols, may continue to use.
	Serving []netip.AddrPort
	// Sources are the clients that may use the LoadBalancer IPs. If Guarded is
	// false, all clients may.
	Sources []netip.Prefix
	Guarded bool
}

// Name returns the name of the service port: namespace/name:port.
func (p *Plan) Name() string { return p.Service.Name.WithPort(p.Port.Name) }

func (p *Plan) affinity() time.Duration { return p.Service.AffinityTimeout }

// HasAffinity reports whether the service port has session affinity.
func (p *Plan) HasAffinity() bool { return p != nil && p.affinity() != 0 }

// AffinityName returns the name of the service port in the names of chains.
func (p *Plan) AffinityName() string {
	name := p.Service.Name.Namespace + "." + p.Service.Name.Name + "." + p.Port.Protocol.String()
	if p.Port.Name == "" {
		return name
	}
	return name + "." + p.Port.Name
}
