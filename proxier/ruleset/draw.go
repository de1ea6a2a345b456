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

// draw returns the way in which the chains of a kind draw a row.
func (p *Plan) draw(k chainKind) draw {
	table := p.table(k)
	switch {
	case table == nil:
		return random
	case p.Service.Balance == cluster.BalanceSourceHash:
		return sourceHash
	case p.Service.Balance == cluster.BalanceSourcePortHash:
		return sourcePortHash
	case isAscending(table):
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

// table returns the table of a kind of chain, nil if each target has one row.
func (p *Plan) table(k chainKind) []uint16 {
	if k == toLocal {
		return p.LocalTable
	}
	return p.ClusterTable
}

// rowsOf returns the number of rows from which the chains of a kind select.
func (p *Plan) rowsOf(k chainKind) int {
	if table := p.table(k); table != nil {
		return len(table)
	}
	return len(p.targets(k))
}

// Rows returns the targets of the rows from which traffic with a policy draws.
func (p *Plan) Rows(policy cluster.Policy) []Target {
	if policy == cluster.PolicyLocal {
		return p.indexed(toLocal)
	}
	return p.indexed(toAll)
}

// indexed returns the targets of the rows of a kind of chain.
func (p *Plan) indexed(k chainKind) []Target {
	table, targets := p.table(k), p.targets(k)
	if table == nil {
		return targets
	}
	out := make([]Target, len(table))
	for i, t := range table {
		out[i] = targets[t]
	}
	return out
}

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
