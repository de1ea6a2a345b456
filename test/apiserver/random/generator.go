package random

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
)

// Generator generates a cluster and its changes as a function of the seed.
type Generator struct {
	*rand.Rand
	endpoints map[string][2]netip.Addr // addresses of endpoints, by name
}

// New returns a generator. The endpoints are possible endpoints of all Services
// by the name of the server.
func New(seed uint64, endpoints map[string][2]netip.Addr) *Generator {
	return &Generator{rand.New(rand.NewPCG(seed, 0)), endpoints}
}

// Chance returns true with a probability in percent.
func (g *Generator) Chance(percent int) bool { return g.IntN(100) < percent }

// Pick returns one of the choices.
func Pick[T any](g *Generator, choices []T) T { return choices[g.IntN(len(choices))] }

// State is the desired state of the cluster.
type State struct {
	Apps []*App
	Zone string // of node1
}

// Named returns the app of a name, or nil.
func (s *State) Named(name string) *App {
	for _, a := range s.Apps {
		if a.Name() == name {
			return a
		}
	}
	return nil
}

const (
	maxApps   = 24
	firstApps = 14
)

// Initial returns the first state.
func (g *Generator) Initial() *State {
	s := &State{Zone: "east"}
	for range firstApps {
		s.Apps = append(s.Apps, g.newApp(s.freeSlot(g)))
	}
	return s
}

// Clone returns a copy without the apps of addRival.
func (s *State) Clone() *State {
	c := &State{Zone: s.Zone}
	for _, a := range s.Apps {
		if !a.rival {
			c.Apps = append(c.Apps, a.clone())
		}
	}
	return c
}

// Next returns the state after a step of changes, and describes them.
func (g *Generator) Next(before *State) (*State, []string) {
	s := before.Clone()
	var done []string
	for range 3 + g.IntN(6) {
		done = append(done, g.Change(s))
	}
	if g.Chance(12) {
		done = append(done, g.addRival(s))
	}
	return s, done
}

// addRival adds an app that claims a frontend of another app. It stays for one
// step.
func (g *Generator) addRival(s *State) string {
	owner := Pick(g, s.Apps)
	rival := g.newApp(s.freeSlot(g))
	rival.kind, rival.rival = clusterIPKind, true
	rival.spec.Ports = rival.spec.Ports[:1]
	rival.spec.Ports[0].Port, rival.spec.Ports[0].Protocol = owner.spec.Ports[0].Port, owner.spec.Ports[0].Protocol
	g.drawSlices(rival)
	i := g.IntN(len(owner.families))
	rival.setFamilies(owner.families[i : i+1])
	claims := append([]string{owner.spec.ClusterIPs[i]}, owner.spec.ExternalIPs...)
	rival.spec.ExternalIPs = []string{Pick(g, claims)}
	s.Apps = append(s.Apps, rival)
	return fmt.Sprintf("add %s with the frontend %s of %s", rival.Name(), rival.spec.ExternalIPs[0], owner.Name())
}

// Change makes a change, and describes it.
func (g *Generator) Change(s *State) string {
	choice := g.IntN(100)
	switch {
	case choice < 12 && len(s.Apps) < maxApps || len(s.Apps) == 0:
		a := g.newApp(s.freeSlot(g))
		s.Apps = append(s.Apps, a)
		return "add " + a.Name()
	case choice < 22:
		i := g.IntN(len(s.Apps))
		name := s.Apps[i].Name()
		s.Apps = slices.Delete(s.Apps, i, i+1)
		return "delete " + name
	case choice < 26:
		s.Zone = Pick(g, []string{"east", "west", ""})
		return fmt.Sprintf("zone %q", s.Zone)
	}
	a := Pick(g, s.Apps)
	draws := []struct {
		what string
		draw func(*App)
	}{
		{"kind", g.drawKind}, {"families", g.drawFamilies}, {"ports", g.drawPorts}, {"addresses", g.drawAddresses},
		{"policies", g.drawPolicies}, {"affinity", g.drawAffinity}, {"source ranges", g.drawSourceRanges},
		{"slices", g.drawSlices}, {"slices", g.drawSlices}, {"slices", g.drawSlices},
		{"conditions", g.drawConditions}, {"conditions", g.drawConditions},
	}
	d := Pick(g, draws)
	d.draw(a)
	return a.Name() + " " + d.what
}

// freeSlot returns the number of no app.
func (s *State) freeSlot(g *Generator) int {
	for {
		slot := g.IntN(2 * maxApps)
		if !slices.ContainsFunc(s.Apps, func(a *App) bool { return a.Slot == slot }) {
			return slot
		}
	}
}

// newApp returns a random app.
func (g *Generator) newApp(slot int) *App {
	a := &App{Slot: slot}
	for _, draw := range []func(*App){
		g.drawKind, g.drawFamilies, g.drawPorts, g.drawAddresses, g.drawPolicies, g.drawAffinity, g.drawSourceRanges,
	} {
		draw(a)
	}
	return a
}

// drawKind chooses between types and labels of Services.
func (g *Generator) drawKind(a *App) {
	percent := []int{
		clusterIPKind: 30, nodePortKind: 22, loadBalancerKind: 38, headlessKind: 2, externalNameKind: 3, foreignKind: 2,
		labelledKind: 3,
	}
	a.kind = clusterIPKind
	for choice := g.IntN(100); choice >= percent[a.kind]; a.kind++ {
		choice -= percent[a.kind]
	}
}

func (g *Generator) drawFamilies(a *App) {
	a.setFamilies(Pick(g, [][]int{{0}, {1}, {0, 1}, {0, 1}, {1, 0}}))
}

// drawPorts chooses 1 to 3 ports, and EndpointSlices for them.
func (g *Generator) drawPorts(a *App) {
	a.spec.Ports = nil
	for range 1 + g.IntN(3) {
		p := corev1.ServicePort{Port: Pick(g, []int32{80, 80, 443, 53}), Protocol: Pick(g, []corev1.Protocol{
			corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP,
		})}
		taken := func(q corev1.ServicePort) bool { return q.Port == p.Port && q.Protocol == p.Protocol }
		if slices.ContainsFunc(a.spec.Ports, taken) {
			continue
		}
		n := len(a.spec.Ports)
		p.Name, p.NodePort = fmt.Sprintf("p%d", n), int32(30000+4*a.Slot+n)
		for _, q := range a.spec.Ports {
			if q.Port == p.Port { // with another protocol
				p.NodePort = q.NodePort
			}
		}
		a.spec.Ports = append(a.spec.Ports, p)
	}
	if len(a.spec.Ports) == 1 && g.Chance(40) {
		a.spec.Ports[0].Name = ""
	}
	g.drawSlices(a)
}

// drawAddresses chooses external and LoadBalancer IPs.
func (g *Generator) drawAddresses(a *App) {
	a.spec.ExternalIPs, a.ingress = nil, nil
	for f, prefix := range lab.ExternalRanges() {
		if g.Chance(30) {
			a.spec.ExternalIPs = append(a.spec.ExternalIPs, lab.AddrIn(prefix, 1+a.Slot).String())
		}
		if g.Chance(85) {
			a.ingress = append(a.ingress, g.ingress(lab.AddrIn(prefix, 60+a.Slot)))
		}
		if g.Chance(15) {
			a.ingress = append(a.ingress, g.ingress(lab.AddrIn(prefix, 120+a.Slot)))
		}
		if g.Chance(4) { // of node1
			a.spec.ExternalIPs = append(a.spec.ExternalIPs, SecondAddrs()[f].String())
		}
	}
	if g.Chance(2) {
		a.spec.ExternalIPs = append(a.spec.ExternalIPs, manyAddrs(a.Slot)...)
	}
	if g.Chance(4) && len(a.spec.ExternalIPs) > 0 { // both kinds
		a.ingress = append(a.ingress, corev1.LoadBalancerIngress{IP: a.spec.ExternalIPs[0]})
	}
	if g.Chance(8) {
		a.ingress = append(a.ingress, corev1.LoadBalancerIngress{Hostname: "lb.example.com"})
	}
	a.spec.AllocateLoadBalancerNodePorts = ptr.To(!g.Chance(15))
}

// manyAddrs returns so many external IPs that service ports with an endpoint
// have a number (see ruleset.Plan.Number), and that none keeps the number that
// it had with more endpoints. No route leads there.
func manyAddrs(slot int) (addrs []string) {
	const many = 4200
	for i := range many {
		addrs = append(addrs, lab.AddrIn(unroutedRange, slot*many+i).String())
	}
	return addrs
}

var unroutedRange = netip.MustParsePrefix("100.64.0.0/10")

// IsRouted reports whether packets to a frontend of an app reach the nodes.
func IsRouted(addr netip.Addr) bool { return !unroutedRange.Contains(addr) }

// ingress returns a LoadBalancer IP with an ipMode.
func (g *Generator) ingress(addr netip.Addr) corev1.LoadBalancerIngress {
	mode := corev1.LoadBalancerIPModeVIP
	if g.IntN(6) == 0 {
		mode = corev1.LoadBalancerIPModeProxy
	}
	return corev1.LoadBalancerIngress{IP: addr.String(), IPMode: &mode}
}

func (g *Generator) drawPolicies(a *App) {
	local := map[bool]string{true: "Local", false: "Cluster"}
	a.spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(local[g.Chance(45)])
	a.spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy(local[g.Chance(30)]))
}

func (g *Generator) drawAffinity(a *App) {
	a.spec.SessionAffinity, a.spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	if g.Chance(25) {
		timeout := ptr.To(Pick(g, []int32{600, 10800, 86400}))
		a.spec.SessionAffinity = corev1.ServiceAffinityClientIP
		a.spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: timeout},
		}
	}
}

func (g *Generator) drawSourceRanges(a *App) {
	a.spec.LoadBalancerSourceRanges = nil
	if g.Chance(60) {
		return
	}
	for range 1 + g.IntN(3) {
		a.spec.LoadBalancerSourceRanges = append(a.spec.LoadBalancerSourceRanges, Pick(g, []string{
			"172.30.0.100/32", "172.31.0.0/17", "172.31.128.0/17", "10.244.0.0/16", "172.30.0.11/32", "0.0.0.0/0",
			"fd00:30::100/128", "fd00:31::/65", "fd00:31:0:0:8000::/65", "fd00:244::/32", "fd00:30::11/128", "::/0",
			"172.30.0.64/26", "fd00:30::/60",
		}))
	}
}
