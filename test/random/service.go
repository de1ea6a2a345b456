package random

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/lab"
)

// drawKind chooses between types and labels of Services.
func (g *Generator) drawKind(a *App) {
	percent := []int{
		clusterIPKind: 30, nodePortKind: 20, loadBalancerKind: 38, headlessKind: 2, externalNameKind: 3, foreignKind: 2,
		labelledKind: 3, absentKind: 2,
	}
	a.kind = clusterIPKind
	for choice := g.IntN(100); choice >= percent[a.kind]; a.kind++ {
		choice -= percent[a.kind]
	}
}

func (g *Generator) drawFamilies(a *App) {
	families := Pick(g, [][]int{{0}, {1}, {0, 1}, {0, 1}, {1, 0}})
	if len(g.Families) == 1 {
		families = g.Families
	}
	a.setFamilies(families)
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
		if g.Alone { // some are ports of external IPs, too
			p.NodePort = Pick(g, []int32{30000, 30001, 30002, 30003, 443, 53})
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
	for _, f := range g.Families {
		if g.Chance(30) {
			a.spec.ExternalIPs = append(a.spec.ExternalIPs, g.external(a.Slot, f, 1).String())
		}
		if g.Chance(85) {
			a.ingress = append(a.ingress, g.ingress(g.external(a.Slot, f, 60)))
		}
		if g.Chance(15) {
			a.ingress = append(a.ingress, g.ingress(g.external(a.Slot, f, 120)))
		}
		if g.Chance(4) { // of node1
			a.spec.ExternalIPs = append(a.spec.ExternalIPs, SecondAddrs()[f].String())
		}
	}
	if g.Chance(2) {
		for i := range g.ManyIPs {
			a.spec.ExternalIPs = append(a.spec.ExternalIPs, lab.AddrIn(unroutedRange, a.Slot*g.ManyIPs+i).String())
		}
	}
	if g.Chance(4) && len(a.spec.ExternalIPs) > 0 { // both kinds
		a.ingress = append(a.ingress, corev1.LoadBalancerIngress{IP: a.spec.ExternalIPs[0]})
	}
	if g.Chance(8) {
		a.ingress = append(a.ingress, corev1.LoadBalancerIngress{Hostname: "lb.example.com"})
	}
	a.spec.AllocateLoadBalancerNodePorts = ptr.To(!g.Chance(15))
}

// external returns an external address of a slot. In a conflict, it is an
// address of any slot, also a ClusterIP.
func (g *Generator) external(slot, f, first int) netip.Addr {
	if g.Chance(g.Conflicts) {
		slot, first = g.IntN(2*g.Apps), Pick(g, []int{0, 1, 60})
		if first == 0 {
			return clusterIP(slot, f)
		}
	}
	return lab.AddrIn(lab.ExternalRanges()[f], first+slot)
}

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
	if g.Chance(40) {
		return
	}
	for range 1 + g.IntN(3) {
		a.spec.LoadBalancerSourceRanges = append(a.spec.LoadBalancerSourceRanges, Pick(g, []string{
			"172.30.0.100/32", "172.31.0.0/17", "172.31.128.0/17", "10.244.0.0/16", "172.30.0.11/32", "0.0.0.0/0",
			"fd00:30::100/128", "fd00:31::/65", "fd00:31:0:0:8000::/65", "fd00:244::/32", "fd00:30::11/128", "::/0",
			"172.30.0.64/26", "fd00:30::/60", "0.0.0.0/0", "::/0", "10.244.1.0/31", "fd00:244::100/127",
		}))
	}
}

// drawAnnotations chooses hashes, sizes of their tables, weights, and metrics.
func (g *Generator) drawAnnotations(a *App) {
	if !g.Alone {
		return
	}
	a.annotations = map[string]string{}
	for _, choice := range [][]string{
		{translate.AnnotationBalance, "random", "source-hash", "source-port-hash"},
		{translate.AnnotationHashTableSize, "16", "20", "37"},
		{translate.AnnotationMetrics, "true"},
	} {
		if g.Chance(50) {
			a.annotations[choice[0]] = Pick(g, choice[1:])
		}
	}
	for _, s := range a.Slices {
		g.drawWeight(s)
	}
}

// drawWeight chooses the weight of the endpoints of an EndpointSlice.
func (g *Generator) drawWeight(s *discoveryv1.EndpointSlice) {
	s.Annotations = nil
	if g.Alone && g.Chance(25) {
		s.Annotations = map[string]string{translate.AnnotationWeight: strconv.Itoa(g.IntN(3))}
	}
}
