package ruleset

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/rendezvous"
)

// A service port that hashes clients, or whose endpoints have weights, has
// slots: many for each endpoint. Chains draw a slot, and each slot is a row.
// (For users, they are the rows of a hash table.) The slots depend on the
// endpoints and their weights only, so all nodes that use the same endpoints
// have the same ones.

// maxSlotted is the number of targets that can have slots.
const maxSlotted = 1 << 16

// hasSlots reports whether the service ports of a Service have slots. weights
// reports whether endpoints have weights. Session affinity has priority over
// hashes and weights.
func hasSlots(svc *cluster.Service, weights bool) bool {
	return svc.AffinityTimeout == 0 && (weights || svc.Balance != cluster.BalanceRandom)
}

// IsWeightless reports whether an endpoint of a Service gets no new connections
// because of its weight.
func IsWeightless(svc *cluster.Service, weight cluster.Weight) bool {
	return weight.Int() == 0 && hasSlots(svc, true)
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

// slotCount returns the number of slots of n targets, at most, if a number is
// wanted.
func slotCount(n, wanted int) int {
	if n < 2 {
		return n
	}
	return rendezvous.Size(min(n, maxSlotted), wanted)
}

// setSlots computes the slots of a plan with targets.
func (p *Plan) setSlots() error {
	p.ClusterSlots, p.LocalSlots = nil, nil
	if !hasSlots(p.Service, p.HasWeights()) {
		return nil
	}
	if n := max(len(p.Cluster), len(p.Local)); n > maxSlotted {
		return fmt.Errorf("%d endpoints are more than %d, the maximum with hashes or weights", n, maxSlotted)
	}
	p.ClusterSlots, p.LocalSlots = p.slotsOf(p.Cluster), p.slotsOf(p.Local)
	return nil
}

// slotsOf returns the slots of a list of targets. There is one slot for each
// target with a weight above 0 if there is only one, or if their shares are
// equal and random.
func (p *Plan) slotsOf(targets []Target) []uint16 {
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
	slots := rendezvous.Table(endpoints, p.Slots)
	for i, e := range slots {
		slots[i] = order[e]
	}
	return slots
}
