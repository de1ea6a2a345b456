package ruleset

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// balancer is a chain that selects one of the first n rows of the VIP or
// NodePort that a packet is for. All service ports with n rows share it.
type balancer struct {
	kind balancerKind
	draw draw
	n    int
}

// balancerKind is the kind of a balancer: which endpoints it selects from, and
// whether it masquerades.
type balancerKind uint8

const (
	balance            balancerKind = iota // endpoints of a VIP that its policy allows
	balanceAll                             // all endpoints of a VIP with externalTrafficPolicy Local
	external                               // like balance, masqueraded
	nodePortExternal                       // endpoints of a NodePort, masqueraded
	nodePortBalance                        // endpoints of a NodePort that its policy allows
	nodePortBalanceAll                     // all endpoints of a NodePort with externalTrafficPolicy Local
	balancerKinds
)

// String returns the prefix of the names of chains of this kind.
func (k balancerKind) String() string {
	return [...]string{"balance", "balance-all", "external", "nodeport", "nodeport-balance", "nodeport-balance-all"}[k]
}

// allOffset is the index of the first of all endpoints of a VIP or NodePort
// with externalTrafficPolicy Local. The endpoints of this node have smaller
// indexes.
const allOffset = 65536

// name returns the name of the balancer's chain: `balance-3` or
// `balance-hash-251`.
func (b balancer) name() string { return b.kind.String() + "-" + b.draw.String() + strconv.Itoa(b.n) }

func (b balancer) masquerades() bool { return b.kind == external || b.kind == nodePortExternal }

// dispatch returns the sets of the frontends that use the balancer.
func (b balancer) dispatch(l *layout) *dispatchSets {
	if b.kind == nodePortExternal || b.kind == nodePortBalance || b.kind == nodePortBalanceAll {
		return &l.nodePorts
	}
	return &l.vips
}

// chain returns the balancer's chain. For `external-3` it is
//
//	meta mark set meta mark | 0x00004000
//	dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @service-endpoints
//
// `balance-3` has the second rule only. `balance-all-3` has
// `numgen random mod 3 offset 65536` there. Balancers of NodePorts look up
// `meta l4proto . th dport . numgen random mod 3` in @nodeport-endpoints. See
// draw for `balance-weighted-251` and `balance-hash-251`, which look rows up in
// @service-tables.
func (b balancer) chain(l *layout, mark uint32) *nft.Chain {
	d := b.dispatch(l)
	var offset uint32
	if b.kind == d.balanceAll {
		offset = allOffset
	}
	var rules []nft.Rule
	if b.masquerades() {
		rules = append(rules, nft.NewRule(nft.SetMarkBits(mark)))
	}
	pick := append(slices.Clip(d.key), b.draw.index(l.family, b.n, offset))
	rules = append(rules, nft.NewRule(nft.DNATMap(l.family, d.rowsOf(b.draw), pick...)))
	return &nft.Chain{Name: b.name(), Rules: rules}
}

// parseBalancer returns the balancer with a chain of this name.
func parseBalancer(chain string) (balancer, bool) {
	for k := range balancerKinds {
		for d := range draws {
			number, _ := strings.CutPrefix(chain, k.String()+"-"+d.String())
			n, err := strconv.Atoi(number)
			if b := (balancer{k, d, n}); err == nil && n > 0 && b.name() == chain {
				return b, true
			}
		}
	}
	return balancer{}, false
}

// Balancer returns the chain of a balancer, nil if no balancer has that name.
func (r *Ruleset) Balancer(chain string) *nft.Chain {
	b, ok := parseBalancer(chain)
	if !ok {
		return nil
	}
	return b.chain(r.layout, r.config.mark())
}

// Balancers returns the chains of the balancers that select one of n endpoints.
func (r *Ruleset) Balancers(n int) (chains []*nft.Chain) {
	for k := range balancerKinds {
		chains = append(chains, balancer{k, random, n}.chain(r.layout, r.config.mark()))
	}
	return chains
}

// balancerNames caches the names of balancers.
type balancerNames map[balancer]string

func (names balancerNames) get(b balancer) string {
	name, ok := names[b]
	if !ok {
		name = b.name()
		names[b] = name
	}
	return name
}
