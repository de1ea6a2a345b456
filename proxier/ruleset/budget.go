package ruleset

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Budgets limit the rows of a table, because a user who may create Services
// chooses their frontends, endpoints and source ranges. A Service whose rows
// exceed its budget is reduced: to fewer endpoints, in equal numbers for each
// port, then to fewer external IPs, then to fewer LoadBalancer IPs. Source
// ranges get half of the budget; clients of the others are dropped. ClusterIPs,
// NodePorts and one endpoint of each port always stay.
//
// The objects with the lowest hashes stay. So a restart and other nodes choose
// the same, and one change moves at most one other object.
type Budgets struct {
	// Service and Namespace are the numbers of rows that a Service, and the
	// Services of a namespace, can have in each table. 0 means the default.
	Service, Namespace int
}

// The defaults of Budgets.
const (
	DefaultServiceRows   = 400_000
	DefaultNamespaceRows = 1_000_000
)

// Validate returns an error that names every invalid value.
func (b Budgets) Validate() error {
	if b.Service < 0 || b.Namespace < 0 {
		return fmt.Errorf("%d rows of a Service, %d rows of a namespace: must not be negative", b.Service, b.Namespace)
	}
	return nil
}

// OfService returns the budget of a Service.
func (b Budgets) OfService() int { return cmp.Or(b.Service, DefaultServiceRows) }

// OfNamespace returns the budget of a namespace.
func (b Budgets) OfNamespace() int { return cmp.Or(b.Namespace, DefaultNamespaceRows) }

// Share is the part of a Service that its budget covers.
type Share struct {
	// Addresses, Ranges and Endpoints are the numbers of addresses other than
	// ClusterIPs, of source ranges, and of endpoints of each service port. The
	// first More service ports have one endpoint more.
	Addresses, Ranges, Endpoints, More int
	// AllAddresses, AllRanges and AllEndpoints are the numbers without a limit.
	AllAddresses, AllRanges, AllEndpoints int
	// Rows is the number of rows of the share.
	Rows int
}

// Whole reports whether the budget covers the whole Service.
func (s Share) Whole() bool {
	return s.Addresses == s.AllAddresses && s.Ranges == s.AllRanges && s.Endpoints == s.AllEndpoints
}

// String returns the limits, for people.
func (s Share) String() string {
	var limits []string
	add := func(some, all int, what string) {
		if some < all {
			limits = append(limits, fmt.Sprintf("%d of %d %s", some, all, what))
		}
	}
	add(s.Addresses, s.AllAddresses, "external IPs and LoadBalancer IPs")
	add(s.Ranges, s.AllRanges, "source ranges")
	add(s.Endpoints, s.AllEndpoints, "endpoints of each port")
	return strings.Join(limits, ", ")
}

// costs computes the rows of a Service in one family. They do not depend on the
// node, nor on which endpoints are ready.
type costs struct {
	svc                                    *cluster.Service
	clusterIPs, lbIPs, externalIPs, ranges int
	// port is the size of each service port, apart from its frontends and
	// endpoints.
	port portSize
}

func costsOf(f nft.Family, svc *cluster.Service, weights bool, slots int) costs {
	count := func(addrs []netip.Addr) (n int) {
		for _, a := range addrs {
			if f.Of(a) {
				n++
			}
		}
		return n
	}
	c := costs{
		svc: svc, port: portSize{lists: 1},
		clusterIPs: count(svc.ClusterIPs), lbIPs: count(svc.LoadBalancerIPs), externalIPs: count(svc.ExternalIPs),
	}
	if c.lbIPs > 0 {
		c.ranges = len(f.Prefixes(svc.SourceRanges))
	}
	if hasSlots(svc, weights) {
		c.port.slots = slots
	}
	if svc.InternalPolicy == cluster.PolicyLocal || svc.ExternalPolicy == cluster.PolicyLocal {
		c.port.lists = 2
	}
	if svc.AffinityTimeout != 0 {
		c.port.ruleCost = 1
	}
	return c
}

// rowsOfPort returns the number of rows of port i, with a number of addresses
// other than ClusterIPs, if all its endpoints are on this node.
func (c *costs) rowsOfPort(i, addresses, endpoints int) int {
	port := c.port
	port.frontends, port.endpoints, port.hairpin = c.clusterIPs+addresses, endpoints, endpoints
	if c.svc.Ports[i].NodePort != 0 {
		port.frontends++
	}
	return port.rows()
}

// rows returns the number of rows of all ports, with a number of endpoints of
// port i.
func (c *costs) rows(addresses int, endpoints func(i int) int) (n int) {
	for i := range c.svc.Ports {
		n += c.rowsOfPort(i, addresses, endpoints(i))
	}
	return n
}

// ShareOf returns the part of a Service that a budget covers. All endpoints
// must be of the family. slots is the number of slots (see Config.Slots).
func ShareOf(f nft.Family, svc *cluster.Service, endpoints []*cluster.Endpoint, slots, budget int) Share {
	c := costsOf(f, svc, HasWeights(endpoints), slots)
	s := Share{AllAddresses: c.lbIPs + c.externalIPs, AllRanges: c.ranges, AllEndpoints: len(endpoints)}
	each := func(n int) func(int) int { return func(int) int { return n } }
	// The smallest number that exceeds the budget, minus one.
	s.Addresses = sort.Search(s.AllAddresses, func(n int) bool { return c.rows(n+1, each(1)) > budget })
	guarded := min(c.lbIPs, s.Addresses) * len(svc.Ports)
	if s.Ranges = c.ranges; guarded > 0 {
		s.Ranges = min(c.ranges, budget/2/guarded)
	}
	left := budget - guarded*s.Ranges
	if s.Endpoints, s.Rows = s.AllEndpoints, c.rows(s.Addresses, each(len(endpoints))); s.Rows > left {
		c.reduceEndpoints(&s, endpointsByPort(svc, endpoints), left)
	}
	s.Rows += guarded * s.Ranges
	return s
}

// reduceEndpoints limits the endpoints of each port to the largest number whose
// rows are within a budget.
func (c *costs) reduceEndpoints(s *Share, endpoints []int, budget int) {
	rows := func(limit int) int {
		return c.rows(s.Addresses, func(i int) int { return min(endpoints[i], limit) })
	}
	most := slices.Max(endpoints)
	s.Endpoints = max(1, sort.Search(most, func(n int) bool { return rows(n+1) > budget }))
	s.Rows = rows(s.Endpoints)
	if s.Endpoints >= most {
		s.Endpoints = s.AllEndpoints
		return
	}
	for i, all := range endpoints {
		some := min(all, s.Endpoints)
		more := c.rowsOfPort(i, s.Addresses, min(all, some+1)) - c.rowsOfPort(i, s.Addresses, some)
		if s.Rows+more > budget {
			break
		}
		s.Rows, s.More = s.Rows+more, i+1
	}
}

// endpointsByPort returns the number of endpoints of each port of a Service, in
// linear time. An endpoint that is in several slices counts several times.
func endpointsByPort(svc *cluster.Service, endpoints []*cluster.Endpoint) []int {
	type slice struct {
		ports     []cluster.EndpointPort
		endpoints int
	}
	all := make(map[*cluster.EndpointPort]slice) // endpoints of a slice share their ports
	for _, e := range endpoints {
		if len(e.Ports) > 0 {
			first := &e.Ports[0]
			all[first] = slice{e.Ports, all[first].endpoints + 1}
		}
	}
	byKey := make(map[cluster.ServicePort]int)
	for _, s := range all {
		for _, p := range s.ports {
			byKey[cluster.ServicePort{Name: p.Name, Protocol: p.Protocol}] += s.endpoints
		}
	}
	counts := make([]int, len(svc.Ports))
	for i, p := range svc.Ports {
		counts[i] = byKey[cluster.ServicePort{Name: p.Name, Protocol: p.Protocol}]
	}
	return counts
}

// LimitAddresses returns all ClusterIPs, and of the other addresses as many as
// a Share has: LoadBalancer IPs before external IPs, and those with the lowest
// hashes. The order stays.
func (s Share) LimitAddresses(addrs []Address) []Address {
	n := 0 // the ClusterIPs come first
	for n < len(addrs) && addrs[n].Kind == ClusterIP {
		n++
	}
	return slices.Concat(addrs[:n], lowest(addrs[n:], s.Addresses, func(a Address) uint64 {
		return uint64(a.Kind)<<60 | hash(netip.AddrPortFrom(a.Addr, 0))>>4
	}))
}

// Limits are the numbers of endpoints and source ranges that a service port can
// have.
type Limits struct{ Endpoints, Ranges int }

// Limits returns the limits of a service port.
func (s Share) Limits(port int) *Limits {
	l := &Limits{s.Endpoints, s.Ranges}
	if port < s.More {
		l.Endpoints++
	}
	return l
}

// targets returns at most as many targets as the limit is, those with the
// lowest hashes. nil means no limit.
func (l *Limits) targets(targets []Target) []Target {
	if l == nil {
		return targets
	}
	return lowest(targets, l.Endpoints, func(t Target) uint64 { return hash(t.AddrPort()) })
}

// LimitEndpoints returns at most n endpoints: by rank, the highest first, and
// among equals by hash, the lowest first. The order stays.
func LimitEndpoints(endpoints []*cluster.Endpoint, n int) []*cluster.Endpoint {
	return lowest(endpoints, n, func(e *cluster.Endpoint) uint64 {
		return uint64(2-e.Rank())<<60 | hash(netip.AddrPortFrom(e.Addr, 0))>>4
	})
}

// ranges returns at most as many source ranges as the limit is, those with the
// lowest hashes.
func (l *Limits) ranges(ranges []netip.Prefix) []netip.Prefix {
	if l == nil {
		return ranges
	}
	return lowest(ranges, l.Ranges, func(p netip.Prefix) uint64 {
		return hash(netip.AddrPortFrom(p.Addr(), uint16(p.Bits())))
	})
}

// lowest returns the elements with the n lowest keys. The order stays. Elements
// with equal keys stay or go together.
func lowest[T any](all []T, n int, key func(T) uint64) []T {
	if len(all) <= n {
		return all
	}
	keys := make([]uint64, len(all))
	for i, e := range all {
		keys[i] = key(e)
	}
	sorted := slices.Sorted(slices.Values(keys))
	var out []T
	for i, e := range all {
		if n > 0 && keys[i] <= sorted[n-1] {
			out = append(out, e)
		}
	}
	return out
}

// hash returns a hash of an address and port. It is the same on all nodes and
// in all versions.
func hash(a netip.AddrPort) uint64 {
	h, ip := fnv.New64a(), a.Addr().As16()
	h.Write(binary.BigEndian.AppendUint16(ip[:], a.Port()))
	// FNV changes the high bits little for the last bytes.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// portSize is what the number of rows of a service port depends on. All
// estimates of rows use it. They are upper limits.
type portSize struct {
	frontends int
	// sources is the number of pairs of a frontend and a source range.
	sources int
	// lists is the number of lists of endpoints, and endpoints the number of
	// endpoints of each list.
	lists, endpoints int
	// slots is the number of slots of a list, 0 without slots.
	slots int
	// hairpin is the number of endpoints on this node.
	hairpin int
	// ruleCost is the number of rows that count as much as a rule of a service
	// port with session affinity, 0 without affinity.
	ruleCost int
}

// rows returns the number of rows.
func (s portSize) rows() int {
	const dispatchRows = 4 // of a frontend
	return dispatchRows*s.frontends + s.sources + s.lists*s.listRows() + s.hairpin
}

// listRows returns the number of rows of one list. A service port with many
// rows gets a number, and has one row for each target then (see numberFor).
func (s portSize) listRows() int {
	const rulesOfEndpoint = 3 // see sticky
	if s.ruleCost > 0 {
		return rulesOfEndpoint * s.ruleCost * s.endpoints
	}
	list := s.endpoints
	if s.slots > 0 {
		list = slotCount(s.endpoints, s.slots)
	}
	product := s.frontends * list
	if list > maxNumberRows {
		return product
	}
	return min(product, DefaultNumberLimit+list)
}

// Cost returns the number of rows that take as long to write as the rows and
// chains of a plan with this number of targets, approximately and at most.
// weights reports whether they have weights.
func (p *Plan) Cost(targets int, weights bool) int {
	s := portSize{frontends: len(p.Frontends), lists: 1, endpoints: targets}
	if p.HasAffinity() {
		s.ruleCost = 3
	}
	if hasSlots(p.Service, weights) {
		s.lists, s.slots = 2, p.Slots
	}
	for _, f := range p.Frontends {
		if f.Kind == LoadBalancerIP {
			s.sources += len(p.Sources)
		}
	}
	return s.rows()
}
