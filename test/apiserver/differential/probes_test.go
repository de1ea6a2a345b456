package differential

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
	"github.com/nftproxy/nftproxy/test/random"
)

// probe is an origin and a destination.
type probe struct {
	frontend.Frontend             // of the network http for a request to a health check
	side, from        int         // the indexes of a side and of an origin
	app               *random.App // nil for destinations of no Service
	affinity          bool
	contested         bool // several apps claim the frontend
}

// family returns 0 for IPv4, 1 for IPv6.
func (p probe) family() int { return map[bool]int{true: 0, false: 1}[p.To.Addr().Is4()] }

// Kinds of destinations besides frontends.
const (
	toHealthCheck frontend.Kind = "health check"
	toRemoved     frontend.Kind = "removed frontend"
	toWrongPort   frontend.Kind = "wrong port"
	toUnallocated frontend.Kind = "unallocated IP"
	inUDPFlow     frontend.Kind = "UDP flow after changes"
	withAffinity  frontend.Kind = "client with affinity after changes"
)

// probes returns probes of a state, a random selection. before is the state
// before the last changes.
func (s *side) probes(g *random.Generator, before, after *random.State) (all []probe) {
	var positive, negative []probe
	claims, had := claimsOf(after), claimsOf(before)
	for _, p := range claims {
		positive = append(positive, s.fromAll(p)...)
	}
	for name, p := range had {
		if _, ok := claims[name]; !ok {
			p.Kind, p.app = toRemoved, nil
			negative = append(negative, s.fromAll(p)...)
		}
	}
	other := func(kind frontend.Kind, network string, to netip.AddrPort, a *random.App) probe {
		return probe{Frontend: frontend.Frontend{Kind: kind, Network: network, To: to}, app: a}
	}
	for _, a := range after.Apps {
		all = append(all, other(toHealthCheck, "http", netip.AddrPortFrom(s.Node1.IPv4, uint16(31500+a.Slot)), a))
		if a.InAPI() == nil {
			continue
		}
		if addr, err := netip.ParseAddr(a.InAPI().Spec.ClusterIP); err == nil {
			negative = append(negative, s.fromAll(other(toWrongPort, "tcp", netip.AddrPortFrom(addr, 9999), a))...)
		}
	}
	for _, prefix := range slices.Concat(lab.ServiceRanges(), random.SecondServiceRanges()) {
		p := other(toUnallocated, "tcp", netip.AddrPortFrom(lab.AddrIn(prefix, 16+g.IntN(200)), 80), nil)
		if _, ok := claims[p.Frontend.String()]; !ok {
			negative = append(negative, s.fromAll(p)...)
		}
	}
	const maxPositive, maxNegative = 130, 20
	all = slices.Concat(all, some(g, positive, maxPositive), some(g, negative, maxNegative))
	for _, p := range all {
		p.side = 1
		all = append(all, p)
	}
	return all
}

// some returns a random selection.
func some(g *random.Generator, probes []probe, n int) []probe {
	text := func(p probe) string { return fmt.Sprint(p.Frontend, p.from) }
	slices.SortFunc(probes, func(a, b probe) int { return cmp.Compare(text(a), text(b)) }) // a map has no order
	g.Shuffle(len(probes), func(i, j int) { probes[i], probes[j] = probes[j], probes[i] })
	return probes[:min(n, len(probes))]
}

// fromAll returns the probe from all origins.
func (s *side) fromAll(p probe) (all []probe) {
	for p.from = range s.origins {
		if !p.To.Addr().IsLoopback() || p.from == fromNode1 {
			all = append(all, p)
		}
	}
	return all
}

// claimsOf returns a probe of each frontend that packets reach, without an
// origin. It includes Services that proxies must ignore.
func claimsOf(s *random.State) map[string]probe {
	all := map[string]probe{}
	nodes := append(slices.Concat(random.NodeAddrs(), random.SecondAddrs()),
		netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	for _, a := range s.Apps {
		if a.InAPI() == nil {
			continue
		}
		for _, f := range frontend.Of(a.InAPI(), nodes...) {
			other, contested := all[f.String()]
			if random.IsRouted(f.To.Addr()) {
				all[f.String()] = probe{
					Frontend: f, app: a, contested: contested && (other.contested || other.app != a),
					affinity: a.InAPI().Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
				}
			}
		}
	}
	return all
}
