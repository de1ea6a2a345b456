package differential

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/test/apiserver/random"
	"github.com/nftproxy/nftproxy/test/lab"
)

// probe is an origin and a destination.
type probe struct {
	kind      string // of the frontend
	from      string // the name of an origin
	network   string // tcp, udp or sctp; http is a request to a health check
	to        netip.AddrPort
	app       *random.App // nil for destinations of no Service
	endpoints int         // at most
	affinity  bool
	contested bool // several apps claim the frontend
}

func (p probe) String() string {
	return fmt.Sprintf("%s: %s -> %s %v", p.kind, p.from, p.network, p.to)
}

// family returns 0 for IPv4, 1 for IPv6.
func (p probe) family() int {
	if p.to.Addr().Is4() {
		return 0
	}
	return 1
}

// Kinds of frontends, and destinations that are none.
const (
	toClusterIP    = "ClusterIP"
	toExternalIP   = "external IP"
	toLoadBalancer = "LoadBalancer IP"
	toNodePort     = "NodePort"
	toHealthCheck  = "health check"
	toRemoved      = "removed frontend"
	toWrongPort    = "wrong port"
	toUnallocated  = "unallocated IP"
	inUDPFlow      = "UDP flow after changes"
	withAffinity   = "client with affinity after changes"
)

// origins returns the names of all origins.
func origins() []string {
	return []string{
		"client", "outside", "elsewhere", "remote pods", "pods", "pod1", "a1", "node1", "node1-second",
	}
}

// generator also chooses configurations and probes.
type generator struct{ *random.Generator }

// limits of the number of probes of a step.
const (
	maxPositive = 130
	maxNegative = 20
)

// probes returns probes of a state, a random selection. before is the state
// before the last changes.
func (g *generator) probes(before, after *random.State) []probe {
	var positive, negative, all []probe
	known := claimsOf(after)
	for _, a := range after.Apps {
		for _, p := range frontends(a) {
			p.contested = known[p.destination()] > 1
			positive = append(positive, g.fromAll(p)...)
		}
		negative = append(negative, g.fromAll(wrongPort(a))...)
		all = append(all, healthCheck(a))
	}
	for _, a := range before.Apps {
		for _, p := range frontends(a) {
			if known[p.destination()] == 0 {
				p.kind, p.app = toRemoved, nil
				negative = append(negative, g.fromAll(p)...)
			}
		}
	}
	for _, ranges := range [][]netip.Prefix{lab.ServiceRanges(), (&random.App{Slot: 3}).ServiceRanges()} {
		for _, prefix := range ranges {
			to := netip.AddrPortFrom(lab.AddrIn(prefix, 16+g.IntN(200)), 80)
			if p := (probe{kind: toUnallocated, network: "tcp", to: to}); known[p.destination()] == 0 {
				negative = append(negative, g.fromAll(p)...)
			}
		}
	}
	all = append(all, g.some(positive, maxPositive)...)
	return append(all, g.some(negative, maxNegative)...)
}

// destination returns the network and address.
func (p probe) destination() string { return fmt.Sprint(p.network, " ", p.to) }

// claimsOf returns how many apps have each destination as a frontend.
func claimsOf(s *random.State) map[string]int {
	all := map[string]int{}
	for _, a := range s.Apps {
		seen := map[string]bool{}
		for _, p := range frontends(a) {
			if !seen[p.destination()] {
				seen[p.destination()] = true
				all[p.destination()]++
			}
		}
	}
	return all
}

// some returns a random selection.
func (g *generator) some(probes []probe, n int) []probe {
	g.Shuffle(len(probes), func(i, j int) { probes[i], probes[j] = probes[j], probes[i] })
	return probes[:min(n, len(probes))]
}

// fromAll returns the probe from all origins.
func (g *generator) fromAll(p probe) []probe {
	if !p.to.IsValid() {
		return nil
	}
	var all []probe
	for _, p.from = range origins() {
		if p.to.Addr().IsLoopback() && p.from != "node1" || p.affinity && !manyClients(p.from) {
			continue
		}
		all = append(all, p)
	}
	return all
}

// manyClients reports whether an origin can show session affinity. Others see
// one endpoint only, which may differ between proxies. But node1 has no pool.
func manyClients(origin string) bool {
	_, pool := pools()[origin]
	return pool || origin == "node1"
}

// frontends returns a probe of each frontend, without an origin. It includes
// Services that proxies must ignore.
func frontends(a *random.App) []probe {
	var all []probe
	for _, sp := range a.Live.Spec.Ports {
		add := func(kind, ip string, number int32) {
			addr, err := netip.ParseAddr(ip)
			if err != nil || number == 0 || !random.IsRouted(addr) {
				return // a host name, no ClusterIP, no NodePort, or an address without a route
			}
			all = append(all, probe{
				kind: kind, network: strings.ToLower(string(sp.Protocol)), to: netip.AddrPortFrom(addr, uint16(number)),
				app: a, endpoints: a.Endpoints(),
				affinity: a.Live.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
			})
		}
		for _, ip := range a.Live.Spec.ClusterIPs {
			add(toClusterIP, ip, sp.Port)
		}
		for _, ip := range a.Live.Spec.ExternalIPs {
			add(toExternalIP, ip, sp.Port)
		}
		for _, ingress := range a.Live.Status.LoadBalancer.Ingress {
			add(toLoadBalancer, ingress.IP, sp.Port)
		}
		for _, ip := range nodeIPs() {
			add(toNodePort, ip, sp.NodePort)
		}
	}
	return all
}

// nodeIPs returns addresses of node1.
func nodeIPs() []string {
	return []string{
		"172.30.0.11", "fd00:30::11", random.SecondAddrs()[0].String(), random.SecondAddrs()[1].String(), "127.0.0.1",
		"::1",
	}
}

// wrongPort returns a probe of a port that the ClusterIP does not have.
func wrongPort(a *random.App) probe {
	addr, err := netip.ParseAddr(a.Live.Spec.ClusterIP)
	if err != nil {
		return probe{}
	}
	return probe{kind: toWrongPort, network: "tcp", to: netip.AddrPortFrom(addr, 9999), app: a}
}

// healthCheck returns a request to the health-check NodePort, whether the
// Service has one or not.
func healthCheck(a *random.App) probe {
	to := netip.AddrPortFrom(netip.MustParseAddr("172.30.0.11"), uint16(31500+a.Slot))
	return probe{kind: toHealthCheck, from: "client", network: "http", to: to, app: a}
}
