package differential

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/test/lab"
)

// generator generates a cluster and its changes as a function of the seed.
type generator struct {
	*rand.Rand
	pods map[string][2]netip.Addr // addresses of endpoints, by name
}

func newGenerator(seed uint64, pods map[string][2]netip.Addr) *generator {
	return &generator{rand.New(rand.NewPCG(seed, 0)), pods}
}

// chance returns true with a probability in percent.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// pick returns one of the choices.
func pick[T any](g *generator, choices []T) T { return choices[g.IntN(len(choices))] }

// state is the desired state of the cluster.
type state struct {
	apps []*app
	zone string // of node1
}

// named returns the app of a name, or nil.
func (s *state) named(name string) *app {
	for _, a := range s.apps {
		if a.name() == name {
			return a
		}
	}
	return nil
}

const (
	maxApps   = 24
	firstApps = 14
)

// initial returns the first state.
func (g *generator) initial() *state {
	s := &state{zone: "east"}
	for range firstApps {
		s.apps = append(s.apps, g.newApp(s.freeSlot(g)))
	}
	return s
}

// next returns the state after a step of changes, and describes them.
func (g *generator) next(before *state) (*state, []string) {
	s := &state{zone: before.zone}
	for _, a := range before.apps {
		if !a.rival {
			s.apps = append(s.apps, a.clone())
		}
	}
	var done []string
	for range 3 + g.IntN(6) {
		done = append(done, g.change(s))
	}
	if g.chance(12) {
		done = append(done, g.addRival(s))
	}
	return s, done
}

// addRival adds an app that claims a frontend of another app. It stays for one
// step.
func (g *generator) addRival(s *state) string {
	owner := pick(g, s.apps)
	rival := g.newApp(s.freeSlot(g))
	rival.kind, rival.rival = clusterIPKind, true
	rival.ports[0].number, rival.ports[0].protocol = owner.ports[0].number, owner.ports[0].protocol
	rival.ports = rival.ports[:1]
	g.drawSlices(rival)
	f := pick(g, owner.families)
	rival.families = []int{f}
	claims := append([]string{lab.AddrIn(owner.serviceRanges()[f], 16+owner.slot).String()}, owner.externalIPs...)
	rival.externalIPs = []string{pick(g, claims)}
	s.apps = append(s.apps, rival)
	return fmt.Sprintf("add %s with the frontend %s of %s", rival.name(), rival.externalIPs[0], owner.name())
}

func (g *generator) change(s *state) string {
	choice := g.IntN(100)
	switch {
	case choice < 12 && len(s.apps) < maxApps || len(s.apps) == 0:
		a := g.newApp(s.freeSlot(g))
		s.apps = append(s.apps, a)
		return "add " + a.name()
	case choice < 22:
		i := g.IntN(len(s.apps))
		name := s.apps[i].name()
		s.apps = slices.Delete(s.apps, i, i+1)
		return "delete " + name
	case choice < 26:
		s.zone = pick(g, []string{"east", "west", ""})
		return fmt.Sprintf("zone %q", s.zone)
	}
	a := pick(g, s.apps)
	draws := []struct {
		what string
		draw func(*app)
	}{
		{"kind", g.drawKind},
		{"families", g.drawFamilies},
		{"ports", g.drawPorts},
		{"addresses", g.drawAddresses},
		{"policies", g.drawPolicies},
		{"affinity", g.drawAffinity},
		{"source ranges", g.drawSourceRanges},
		{"slices", g.drawSlices},
		{"slices", g.drawSlices},
		{"slices", g.drawSlices},
		{"conditions", g.drawConditions},
		{"conditions", g.drawConditions},
	}
	d := pick(g, draws)
	d.draw(a)
	return a.name() + " " + d.what
}

// freeSlot returns the number of no app.
func (s *state) freeSlot(g *generator) int {
	for {
		slot := g.IntN(2 * maxApps)
		if !slices.ContainsFunc(s.apps, func(a *app) bool { return a.slot == slot }) {
			return slot
		}
	}
}

// newApp returns a random app.
func (g *generator) newApp(slot int) *app {
	a := &app{slot: slot}
	for _, draw := range []func(*app){
		g.drawKind, g.drawFamilies, g.drawPorts, g.drawAddresses, g.drawPolicies, g.drawAffinity, g.drawSourceRanges,
	} {
		draw(a)
	}
	return a
}

// drawKind chooses between types and labels of Services.
func (g *generator) drawKind(a *app) {
	choice := g.IntN(100)
	switch {
	case choice < 30:
		a.kind = clusterIPKind
	case choice < 52:
		a.kind = nodePortKind
	case choice < 90:
		a.kind = loadBalancerKind
	case choice < 92:
		a.kind = headlessKind
	case choice < 95:
		a.kind = externalNameKind
	case choice < 97:
		a.kind = foreignKind
	default:
		a.kind = labelledKind
	}
}

func (g *generator) drawFamilies(a *app) {
	a.families = pick(g, [][]int{{0}, {1}, {0, 1}, {0, 1}, {1, 0}})
}

// drawPorts chooses 1 to 3 ports, and EndpointSlices for them.
func (g *generator) drawPorts(a *app) {
	a.ports = nil
	for range 1 + g.IntN(3) {
		p := port{
			number: pick(g, []int32{80, 80, 443, 53}),
			protocol: pick(g, []corev1.Protocol{
				corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP,
			}),
		}
		taken := func(q port) bool { return q.number == p.number && q.protocol == p.protocol }
		if slices.ContainsFunc(a.ports, taken) {
			continue
		}
		p.name, p.nodePort = fmt.Sprintf("p%d", len(a.ports)), int32(30000+4*a.slot+len(a.ports))
		for _, q := range a.ports {
			if q.number == p.number { // with another protocol
				p.nodePort = q.nodePort
			}
		}
		a.ports = append(a.ports, p)
	}
	if len(a.ports) == 1 && g.chance(40) {
		a.ports[0].name = ""
	}
	g.drawSlices(a)
}

// drawAddresses chooses external and LoadBalancer IPs.
func (g *generator) drawAddresses(a *app) {
	a.externalIPs, a.ingress = nil, nil
	for f, prefix := range lab.ExternalRanges() {
		if g.chance(30) {
			a.externalIPs = append(a.externalIPs, lab.AddrIn(prefix, 1+a.slot).String())
		}
		if g.chance(85) {
			a.ingress = append(a.ingress, ingress(lab.AddrIn(prefix, 60+a.slot), g.mode()))
		}
		if g.chance(15) {
			a.ingress = append(a.ingress, ingress(lab.AddrIn(prefix, 120+a.slot), g.mode()))
		}
		if g.chance(4) { // of node1
			a.externalIPs = append(a.externalIPs, secondAddrs()[f].String())
		}
	}
	if g.chance(4) && len(a.externalIPs) > 0 { // both kinds
		a.ingress = append(a.ingress, corev1.LoadBalancerIngress{IP: a.externalIPs[0]})
	}
	if g.chance(8) {
		a.ingress = append(a.ingress, corev1.LoadBalancerIngress{Hostname: "lb.example.com"})
	}
	a.withoutNodePorts = g.chance(15)
}

// mode returns an ipMode.
func (g *generator) mode() *corev1.LoadBalancerIPMode {
	vip, proxy := corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy
	return pick(g, []*corev1.LoadBalancerIPMode{nil, nil, nil, &vip, &vip, &proxy})
}

func (g *generator) drawPolicies(a *app) {
	a.externalLocal, a.internalLocal = g.chance(45), g.chance(30)
}

func (g *generator) drawAffinity(a *app) {
	a.affinity = 0
	if g.chance(25) {
		a.affinity = pick(g, []int32{600, 10800, 86400})
	}
}

func (g *generator) drawSourceRanges(a *app) {
	a.sourceRanges = nil
	if g.chance(60) {
		return
	}
	for range 1 + g.IntN(3) {
		a.sourceRanges = append(a.sourceRanges, pick(g, []string{
			"172.30.0.100/32", "172.31.0.0/17", "172.31.128.0/17", "10.244.0.0/16", "172.30.0.11/32", "0.0.0.0/0",
			"fd00:30::100/128", "fd00:31::/65", "fd00:31:0:0:8000::/65", "fd00:244::/32", "fd00:30::11/128", "::/0",
		}))
	}
}
