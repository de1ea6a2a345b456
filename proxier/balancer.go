package proxier

import (
	"fmt"
	"strconv"

	"github.com/nftproxy/nftproxy/nft"
)

// balancer is a chain that picks one of the first n endpoints of whatever VIP or NodePort a packet is for. There is one for
// each number of endpoints in use, shared by all services.
type balancer struct {
	kind balancerKind
	n    int
}

// balancerKind says which endpoints a balancer picks from, and what it does beside.
type balancerKind uint8

const (
	balance            balancerKind = iota // endpoints of a VIP that its policy allows
	balanceAll                             // all endpoints of a VIP with externalTrafficPolicy Local
	external                               // as balance, masqueraded
	nodePort                               // endpoints of a NodePort, masqueraded
	nodePortBalance                        // endpoints of a NodePort that its policy allows
	nodePortBalanceAll                     // all endpoints of a NodePort with externalTrafficPolicy Local
	balancerKinds
)

// String returns what the names of the chains of this kind begin with.
func (k balancerKind) String() string {
	return [...]string{"balance", "balance-all", "external", "nodeport", "nodeport-balance", "nodeport-balance-all"}[k]
}

// allOffset is the index from which on a VIP or NodePort with externalTrafficPolicy Local has all endpoints: more than a
// service can have of this node.
const allOffset = 65536

// name returns the name of the balancer's chain: `balance-3`.
func (b balancer) name() string { return b.kind.String() + "-" + strconv.Itoa(b.n) }

// chain returns the balancer's chain. `external-3`, for example:
//
//	meta mark set meta mark | 0x00004000
//	dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @service-endpoints
//
// of which `balance-3` has the second rule only, and `balance-all-3` says `numgen random mod 3 offset 65536` there.
// Those of NodePorts ask @nodeport-endpoints for `meta l4proto . th dport . numgen random mod 3`.
func (b balancer) chain(l *layout, mark uint32) *nft.Chain {
	m, key := l.serviceEndpoints, l.vip()
	if b.kind == nodePort || b.kind == nodePortBalance || b.kind == nodePortBalanceAll {
		m, key = l.nodePortEndpoints, l.nodePort()
	}
	var offset uint32
	if b.kind == balanceAll || b.kind == nodePortBalanceAll {
		offset = allOffset
	}
	var rules []nft.Rule
	if b.kind == external || b.kind == nodePort {
		rules = append(rules, nft.NewRule(nft.SetMarkBits(mark)))
	}
	pick := append(key, nft.Random(uint32(b.n), offset))
	rules = append(rules, nft.NewRule(nft.DNATMap(l.family, m, pick...)))
	return &nft.Chain{Name: b.name(), Rules: rules}
}

// parseBalancer returns the balancer that has a chain of this name.
func parseBalancer(chain string) (balancer, bool) {
	for k := range balancerKinds {
		var n int
		if _, err := fmt.Sscanf(chain, k.String()+"-%d", &n); err == nil && n > 0 {
			if b := (balancer{k, n}); b.name() == chain {
				return b, true
			}
		}
	}
	return balancer{}, false
}

// balancerNames hands out the names of balancers without making them anew each time.
type balancerNames [balancerKinds][]string

func (names *balancerNames) get(k balancerKind, n int) string {
	for len(names[k]) <= n {
		names[k] = append(names[k], balancer{k, len(names[k])}.name())
	}
	return names[k][n]
}
