package differential

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
	"github.com/nftproxy/nftproxy/test/random"
)

// probe is an origin and a destination.
type probe struct {
	frontend.Frontend             // of the network http for a request to a health check
	from              string      // the name of an origin
	app               *random.App // nil for destinations of no Service
	affinity          bool
	contested         bool // several apps claim the frontend
}

func (p probe) String() string {
	return fmt.Sprintf("%s: %s -> %s %v", p.Kind, p.from, p.Network, p.To)
}

// family returns 0 for IPv4, 1 for IPv6.
func (p probe) family() int {
	if p.To.Addr().Is4() {
		return 0
	}
	return 1
}

// Kinds of destinations besides frontends.
const (
	toHealthCheck frontend.Kind = "health check"
	toRemoved     frontend.Kind = "removed frontend"
	toWrongPort   frontend.Kind = "wrong port"
	toUnallocated frontend.Kind = "unallocated IP"
	inUDPFlow     frontend.Kind = "UDP flow after changes"
	withAffinity  frontend.Kind = "client with affinity after changes"
)

// origins returns the names of all origins.
func origins() []string {
	return []string{
		"client", "outside", "elsewhere", "remote pods", "pods", "pod1", "a1", "node1", "node1-second",
	}
}

// limits of the number of probes of a step.
const (
	maxPositive = 130
	maxNegative = 20
)

// probes returns probes of a state, a random selection. before is the state
// before the last changes.
func probesOf(g *random.Generator, before, after *random.State) []probe {
	var positive, negative, all []probe
	known := claimsOf(after)
	for _, a := range after.Apps {
		for _, p := range frontends(a) {
			p.contested = known[p.Frontend.String()] > 1
			positive = append(positive, fromAll(p)...)
		}
		negative = append(negative, fromAll(wrongPort(a))...)
		all = append(all, healthCheck(a))
	}
	for _, a := range before.Apps {
		for _, p := range frontends(a) {
			if known[p.Frontend.String()] == 0 {
				p.Kind, p.app = toRemoved, nil
				negative = append(negative, fromAll(p)...)
			}
		}
	}
	for _, ranges := range [][]netip.Prefix{lab.ServiceRanges(), random.SecondServiceRanges()} {
		for _, prefix := range ranges {
			to := netip.AddrPortFrom(lab.AddrIn(prefix, 16+g.IntN(200)), 80)
			f := frontend.Frontend{Kind: toUnallocated, Network: "tcp", To: to}
			if known[f.String()] == 0 {
				negative = append(negative, fromAll(probe{Frontend: f})...)
			}
		}
	}
	all = append(all, some(g, positive, maxPositive)...)
	return append(all, some(g, negative, maxNegative)...)
}

// claimsOf returns how many apps have each destination as a frontend.
func claimsOf(s *random.State) map[string]int {
	all := map[string]int{}
	for _, a := range s.Apps {
		seen := map[string]bool{}
		for _, p := range frontends(a) {
			if !seen[p.Frontend.String()] {
				seen[p.Frontend.String()] = true
				all[p.Frontend.String()]++
			}
		}
	}
	return all
}

// some returns a random selection.
func some(g *random.Generator, probes []probe, n int) []probe {
	g.Shuffle(len(probes), func(i, j int) { probes[i], probes[j] = probes[j], probes[i] })
	return probes[:min(n, len(probes))]
}

// fromAll returns the probe from all origins.
func fromAll(p probe) []probe {
	if !p.To.IsValid() {
		return nil
	}
	var all []probe
	for _, p.from = range origins() {
		if p.To.Addr().IsLoopback() && p.from != "node1" {
			continue
		}
		all = append(all, p)
	}
	return all
}

// frontends returns a probe of each frontend that packets reach, without an
// origin. It includes Services that proxies must ignore.
func frontends(a *random.App) (all []probe) {
	if a.Live == nil {
		return nil
	}
	for _, f := range frontend.Of(a.Live, nodeIPs()...) {
		if random.IsRouted(f.To.Addr()) {
			all = append(all, probe{
				Frontend: f, app: a,
				affinity: a.Live.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
			})
		}
	}
	return all
}

// nodeIPs returns addresses of node1.
func nodeIPs() []netip.Addr {
	second := random.SecondAddrs()
	return []netip.Addr{
		netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:30::11"), second[0], second[1],
		netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(),
	}
}

// wrongPort returns a probe of a port that the ClusterIP does not have.
func wrongPort(a *random.App) probe {
	if a.Live == nil {
		return probe{}
	}
	addr, err := netip.ParseAddr(a.Live.Spec.ClusterIP)
	if err != nil {
		return probe{}
	}
	to := netip.AddrPortFrom(addr, 9999)
	return probe{Frontend: frontend.Frontend{Kind: toWrongPort, Network: "tcp", To: to}, app: a}
}

// healthCheck returns a request to the health-check NodePort, whether the
// Service has one or not.
func healthCheck(a *random.App) probe {
	to := netip.AddrPortFrom(netip.MustParseAddr("172.30.0.11"), uint16(31500+a.Slot))
	return probe{Frontend: frontend.Frontend{Kind: toHealthCheck, Network: "http", To: to}, from: "client", app: a}
}
