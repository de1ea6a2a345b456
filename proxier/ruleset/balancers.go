package ruleset

import (
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/rendezvous"
)

// Balancer returns the chain of a balancer, and the row that leads to it.
func (r *Ruleset) Balancer(c Class) (*nft.Chain, nft.Row) {
	chain := c.chain(r.layout.family, r.config)
	return chain, leads(r.layout.chainsOf(c), c, chain.Name)
}

// chain returns the chain of a balancer. For `guarded-3` it is
//
//	jump firewall
//	meta mark set meta mark | 0x00004000 meta priority set numgen random mod 3 offset 1 goto retry
//
// `external-3` has the second rule only, and `balance-3` has, before its draw,
// `jump outside-cluster`. `all-3` draws with the offset 16777217. Balancers of
// NodePorts go to retry-nodeport. `balance-1`, `balance-once-3` and hashes go
// to pick. See draw for `balance-weighted-251` and `balance-hash-251`.
func (c Class) chain(f nft.Family, config *Config) *nft.Chain {
	k, chain := kinds[c.kind()], &nft.Chain{Name: c.name()}
	if k.first != "" {
		chain.Rules = append(chain.Rules, nft.NewRule(nft.Jump(k.first)))
	}
	var prepare nft.Statement
	if k.masquerade {
		prepare = nft.SetMarkBits(config.mark())
	}
	draw := nft.SetPriority(c.draw().index(f, c.rows(), k.index))
	chain.Rules = append(chain.Rules, nft.NewRule(prepare, draw, nft.Goto(config.after(k.to, c.draw(), c.rows()))))
	return chain
}

// Balancers returns the classes of the balancers that draw one of n targets.
func Balancers(n int) (classes []Class) {
	for k := range chainKinds {
		classes = append(classes, balancerClass(k, random, n))
	}
	return classes
}

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

// The first packet of a connection draws an endpoint, and connection tracking
// remembers it. If the endpoint is dead, the client repeats its first packet,
// and each of them goes to the same endpoint. Therefore an entry of connection
// tracking without an answer lives for Config.RetryAfter only where a draw can
// have another result: then the repeated packet draws again. A draw of one
// endpoint, hashes and session affinity would have the same result, and the
// answer of a slow endpoint would meet no entry.
//
// The kernel has no such timeouts that nft can write for SCTP. Its default for
// an INIT without an answer is 3 s, after which a client repeats the INIT.

const (
	// MaxRetryAfter is the maximum of Config.RetryAfter, less than any default
	// of the kernel: nft cannot load an object without a timeout of its own.
	MaxRetryAfter = time.Minute
	// retryUDP is how long a UDP flow without an answer keeps its endpoint, in
	// seconds. The resolver of glibc repeats a query after 5 s.
	retryUDP = 3
	// portDNS is the port of service ports whose UDP flows draw again.
	portDNS = 53
)

// retries reports whether connections to a service port without an answer draw
// another endpoint: except those of UDP, among which are flows in one direction
// only, to other ports than that of DNS.
func retries(svc *cluster.Service, port cluster.ServicePort) bool {
	switch svc.Retry {
	case cluster.RetryOn:
		return true
	case cluster.RetryOff:
		return false
	}
	return port.Protocol != cluster.UDP || port.Port == portDNS
}

// after returns the chain to which a chain goes that draws one of n rows.
func (c *Config) after(to pick, d draw, n int) string {
	switch {
	case n == 1:
		return to.chain
	case c.RetryAfter > 0 && (d == random || d == weighted):
		return to.retry
	}
	return to.drawn
}

// Timeouts are timeouts of connection tracking of this network namespace, in
// seconds.
type Timeouts struct{ TCP, UDP nft.TimeoutPolicy }

// SetTimeouts sets the timeouts of connections that have an answer, which are
// part of each Program that is made later. Those that are 0 are copied by the
// kernel when it adds the objects.
func (r *Ruleset) SetTimeouts(t Timeouts) { r.timeouts = t }

// ctTimeouts returns the timeouts of connections whose endpoint was drawn:
//
//	ct timeout retry-tcp { protocol tcp; policy = { syn_sent : 1, syn_recv : 60, … } }
//	ct timeout retry-udp { protocol udp; policy = { unreplied : 3, replied : 120 } }
func (p *program) ctTimeouts() []*nft.CtTimeout {
	tcp := &nft.CtTimeout{Name: "retry-tcp", Protocol: uint8(cluster.TCP), Policy: p.timeouts.TCP}
	udp := &nft.CtTimeout{Name: "retry-udp", Protocol: uint8(cluster.UDP), Policy: p.timeouts.UDP}
	tcp.Policy[0], udp.Policy[0] = uint32(p.config.RetryAfter/time.Second), retryUDP
	return []*nft.CtTimeout{tcp, udp}
}

// retry returns the chains for draws that are repeated. Connections of other
// protocols pass the statements. `retry` is
//
//	ct timeout set "retry-tcp" ct timeout set "retry-udp" goto drawn
func (p *program) retry() (chains []*nft.Chain) {
	if p.config.RetryAfter == 0 {
		return nil
	}
	timeouts := p.ctTimeouts()
	for _, to := range picks() {
		chains = append(chains, &nft.Chain{Name: to.retry, Rules: []nft.Rule{
			nft.NewRule(nft.SetCtTimeout(timeouts[0]), nft.SetCtTimeout(timeouts[1]), nft.Goto(to.drawn)),
		}})
	}
	return chains
}
