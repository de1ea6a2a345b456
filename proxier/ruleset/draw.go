package ruleset

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/rendezvous"
)

// A service port that hashes clients, or whose endpoints have weights, has a
// table: many rows for each endpoint. The table depends on the endpoints and
// their weights only, so all nodes that use the same endpoints have the same
// one.

// draw is the way in which a chain draws the index of a row.
type draw uint8

const (
	random         draw = iota // each target has one row at most
	weighted                   // random, from a table
	sourceHash                 // by a hash of the client's address, from a table
	sourcePortHash             // by a hash of the client's address and port, from a table
	draws
)

// String returns the part of the name of a balancer, such as `hash-`.
func (d draw) String() string { return [...]string{"", "weighted-", "hash-", "port-hash-"}[d] }

// hashSeed is the seed of the hashes of clients. It must never change, so that
// all nodes and versions select the same endpoints.
const hashSeed = 0x5eed

// index yields the index of one of n rows:
//
//	numgen random mod 3
//	jhash ip saddr mod 251 seed 0x5eed
//	jhash ip saddr . th sport mod 251 seed 0x5eed
func (d draw) index(f nft.Family, n int, offset uint32) nft.Expr {
	switch d {
	case sourceHash:
		return nft.Jhash(uint32(n), hashSeed, offset, nft.Saddr(f))
	case sourcePortHash:
		return nft.Jhash(uint32(n), hashSeed, offset, nft.Saddr(f), nft.ThSport())
	}
	return nft.Random(uint32(n), offset)
}

// list is a list of the endpoints of a service port.
type list struct {
	targets []Target
	table   []uint16 // nil if each target has one row
	balance cluster.Balance
}

// list returns the endpoints for traffic with a policy.
func (p *Plan) list(policy cluster.Policy) list {
	if policy == cluster.PolicyLocal {
		return list{p.Local, p.LocalTable, p.Service.Balance}
	}
	return list{p.Cluster, p.ClusterTable, p.Service.Balance}
}

// draw returns the way in which chains draw a row.
func (l list) draw() draw {
	switch {
	case l.table == nil:
		return random
	case l.balance == cluster.BalanceSourceHash:
		return sourceHash
	case l.balance == cluster.BalanceSourcePortHash:
		return sourcePortHash
	case isAscending(l.table):
		return random
	}
	return weighted
}

// isAscending reports whether the rows are in the order of their targets, each
// of which has one row at most.
func isAscending(table []uint16) bool {
	for i := 1; i < len(table); i++ {
		if table[i] <= table[i-1] {
			return false
		}
	}
	return true
}

// rows returns the number of rows from which chains draw.
func (l list) rows() int {
	if l.table != nil {
		return len(l.table)
	}
	return len(l.targets)
}

// indexed returns the targets of the rows.
func (l list) indexed() []Target {
	if l.table == nil {
		return l.targets
	}
	out := make([]Target, len(l.table))
	for i, t := range l.table {
		out[i] = l.targets[t]
	}
	return out
}

// reachable returns the number of targets that have a weight above 0, or no
// need for one.
func (l list) reachable() (n int) {
	if l.table == nil {
		return len(l.targets)
	}
	for _, t := range l.targets {
		if t.Weight.Int() > 0 {
			n++
		}
	}
	return n
}

// Rows returns the targets of the rows from which traffic with a policy draws.
func (p *Plan) Rows(policy cluster.Policy) []Target { return p.list(policy).indexed() }

// maxTable is the number of targets that a table can have.
const maxTable = 1 << 16

// hasTable reports whether the service ports of a Service have tables. weights
// reports whether endpoints have weights. Session affinity has priority over
// hashes and weights.
func hasTable(svc *cluster.Service, weights bool) bool {
	return svc.AffinityTimeout == 0 && (weights || svc.Balance != cluster.BalanceRandom)
}

// IsWeightless reports whether an endpoint of a Service gets no new connections
// because of its weight.
func IsWeightless(svc *cluster.Service, weight cluster.Weight) bool {
	return weight.Int() == 0 && hasTable(svc, true)
}

// HasWeights reports whether an endpoint has another weight than the default.
func HasWeights(endpoints []*cluster.Endpoint) bool {
	return slices.ContainsFunc(endpoints, func(e *cluster.Endpoint) bool { return e.Weight != 0 })
}

// HasWeights reports whether a target has another weight than the default.
func (p *Plan) HasWeights() bool { return haveWeights(p.Cluster) || haveWeights(p.Local) }

func haveWeights(targets []Target) bool {
	return slices.ContainsFunc(targets, func(t Target) bool { return t.Weight != 0 })
}

// tableRows returns the number of rows of the table of n targets, at most. size
// is the number of rows that is wanted.
func tableRows(n, size int) int {
	if n < 2 {
		return n
	}
	return rendezvous.Size(min(n, maxTable), size)
}

// setTables computes the tables of a plan with targets.
func (p *Plan) setTables() error {
	p.ClusterTable, p.LocalTable = nil, nil
	if !hasTable(p.Service, p.HasWeights()) {
		return nil
	}
	if n := max(len(p.Cluster), len(p.Local)); n > maxTable {
		return fmt.Errorf("%d endpoints are more than %d, the maximum with hashes or weights", n, maxTable)
	}
	p.ClusterTable, p.LocalTable = p.tableOf(p.Cluster), p.tableOf(p.Local)
	return nil
}

// tableOf returns the table of a list of targets. It has one row for each
// target with a weight above 0 if there is only one, or if their shares are
// equal and random.
func (p *Plan) tableOf(targets []Target) []uint16 {
	hashed := p.Service.Balance != cluster.BalanceRandom
	if len(targets) == 0 || !hashed && !haveWeights(targets) {
		return nil
	}
	order := make([]uint16, 0, len(targets))
	equal := true
	for i, t := range targets {
		if t.Weight.Int() > 0 {
			order = append(order, uint16(i))
			equal = equal && t.Weight == targets[order[0]].Weight
		}
	}
	if len(order) < 2 || equal && !hashed {
		return order
	}
	slices.SortFunc(order, func(a, b uint16) int {
		return targets[a].AddrPort().Compare(targets[b].AddrPort())
	})
	endpoints := make([]rendezvous.Endpoint, len(order))
	for i, t := range order {
		endpoints[i] = rendezvous.Endpoint{AddrPort: targets[t].AddrPort(), Weight: targets[t].Weight.Int()}
	}
	table := rendezvous.Table(endpoints, p.TableSize)
	for row, i := range table {
		table[row] = order[i]
	}
	return table
}
