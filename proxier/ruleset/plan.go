package ruleset

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// AddressKind is the kind of a frontend's address. If two service ports claim
// the same address, the smaller kind has priority.
type AddressKind uint8

// The kinds of addresses.
const (
	ClusterIP AddressKind = iota
	LoadBalancerIP
	ExternalIP
	NodePort // all addresses of the node, or some of them
)

// String returns the kind in CamelCase, such as ClusterIP.
func (k AddressKind) String() string {
	return [...]string{"ClusterIP", "LoadBalancerIP", "ExternalIP", "NodePort"}[k]
}

// MarshalText implements encoding.TextMarshaler with String.
func (k AddressKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *AddressKind) UnmarshalText(text []byte) error {
	for kind := ClusterIP; kind <= NodePort; kind++ {
		if kind.String() == string(text) {
			*k = kind
			return nil
		}
	}
	return fmt.Errorf("%q is not a kind of addresses", text)
}

// Frontend is one address and port at which clients reach a service port. Only
// one service port can own it.
type Frontend struct {
	Addr  netip.Addr // zero for a NodePort
	Port  uint16
	Proto cluster.Protocol
}

// IsNodePort reports whether the frontend is a NodePort.
func (f Frontend) IsNodePort() bool { return !f.Addr.IsValid() }

// String returns the frontend for events.
func (f Frontend) String() string {
	if f.IsNodePort() {
		return fmt.Sprintf("NodePort %d/%s", f.Port, f.Proto)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.Addr, f.Port), f.Proto)
}

// ServedFrontend is a frontend of a service port, and how it is served.
type ServedFrontend struct {
	Frontend
	Kind   AddressKind
	Policy cluster.Policy
}

// IsClusterIP reports whether the frontend is a ClusterIP. All others follow
// the externalTrafficPolicy.
func (f ServedFrontend) IsClusterIP() bool { return !f.IsNodePort() && f.Kind == ClusterIP }

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
	// ClusterTable and LocalTable are the rows from which hashes or weights
	// select a target, as indexes of Cluster and Local. nil means one row for
	// each target. A table that is empty but not nil means that all targets
	// have weight 0.
	ClusterTable, LocalTable []uint16
	// TableSize is the number of rows of a table, unless it has more targets.
	TableSize int
	// Number identifies the service port in the rows of its targets. It is 0 if
	// they are in the rows of each frontend, or in chains of session affinity.
	Number uint32
	// ClientSet is the number of the affinity set of a service port with
	// session affinity.
	ClientSet uint8
	// Serving are all endpoints of a UDP service port that established flows
	// may continue to use.
	Serving []netip.AddrPort
	// Sources are the clients that may use the LoadBalancer IPs. If Guarded is
	// false, all clients may.
	Sources []netip.Prefix
	Guarded bool
}

// Name returns the name of the service port: namespace/name:port.
func (p *Plan) Name() string { return p.Service.Name.WithPort(p.Port.Name) }

func (p *Plan) affinity() time.Duration { return p.Service.AffinityTimeout }

// PlanInput is the input for a Plan.
type PlanInput struct {
	Node      *cluster.Node
	Service   *cluster.Service
	Port      cluster.ServicePort
	Endpoints []*cluster.Endpoint // of the Service
	// Frontends are those that the service port owns. The plan keeps the slice.
	Frontends []ServedFrontend
	// Limits are nil if the budget covers the whole Service.
	Limits *Limits
	// Number is the number of the service port, in case its plan needs one.
	Number uint32
	// Before is the plan that is replaced, nil if there is none. Endpoints that
	// are in both plans keep their index where possible.
	Before *Plan
}

// MakePlan returns the plan of a service port. It is nil if the service port
// owns no frontend. The targets have no ids yet. The error is the reason why
// the plan cannot be written. LastGood can use it nevertheless.
func (r *Ruleset) MakePlan(in *PlanInput) (*Plan, error) {
	if len(in.Frontends) == 0 {
		return nil, nil
	}
	p := &Plan{
		Service: in.Service, Port: in.Port, Frontends: in.Frontends, TableSize: r.config.TableSize(in.Service),
	}
	before := in.Before
	if before == nil {
		before = &Plan{}
	}
	r.candidates = candidates(r.candidates[:0], in.Endpoints, r.layout.family, in.Port, in.Node)
	all := r.candidates
	p.Cluster = arrange(before.Cluster, in.Limits.targets(usableForCluster(all, in.Node)))
	if slices.ContainsFunc(p.Frontends, func(f ServedFrontend) bool { return f.Policy == cluster.PolicyLocal }) {
		p.Local = arrange(before.Local, in.Limits.targets(usableForLocal(all, in.Node)))
	}
	if in.Port.Protocol == cluster.UDP {
		p.Serving = servingOf(all)
	}
	p.Sources, p.Guarded = sourcesFor(r.layout.family, in)
	if err := p.setTables(); err != nil {
		return p, err
	}
	p.Number = r.numberFor(p, before, in.Number)
	return p, nil
}

// sourcesFor returns the ranges of clients that may use the LoadBalancer IPs of
// a family, without overlaps. It reports whether clients are restricted at all.
// Ranges of the other family do not restrict this one. If a range contains this
// node's own address, the LoadBalancer IPs are added: the node uses them as the
// source address of its own traffic to them.
func sourcesFor(f nft.Family, in *PlanInput) (sources []netip.Prefix, guarded bool) {
	svc := in.Service
	if svc.SourceRanges == nil {
		return nil, false
	}
	guarded = true
	for _, p := range svc.SourceRanges {
		switch {
		case !f.Of(p.Addr()):
			guarded = guarded && (!p.IsValid() || p.Addr().Is4In6())
		case p.Bits() == 0:
			return nil, false
		default:
			sources = append(sources, p.Masked())
		}
	}
	if len(sources) == 0 {
		return nil, guarded
	}
	sources = in.Limits.ranges(disjoint(sources))
	containsNode := slices.ContainsFunc(in.Node.IPs, func(ip netip.Addr) bool {
		return slices.ContainsFunc(sources, func(p netip.Prefix) bool { return p.Contains(ip) })
	})
	if containsNode {
		for _, ip := range svc.LoadBalancerIPs {
			if f.Of(ip) {
				sources = append(sources, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	return disjoint(sources), true
}

// disjoint returns prefixes, sorted, without those that others contain.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	prefixes = slices.Clone(prefixes)
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
	})
	var out []netip.Prefix
	for _, p := range prefixes {
		if len(out) == 0 || !out[len(out)-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}
