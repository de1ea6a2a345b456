package ruleset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Lack is why new connections to a service port reach no endpoint. It is more
// precise than Reach.Reason, because it also considers endpoints that no plan
// has, such as those that are not ready.
type Lack struct {
	// Of is Reach.Reason, which decides what happens to packets.
	Of Reason `json:"of"`
	// Reason is more precise, or the same.
	Reason Reason `json:"code"`
	// Text is the Reason as a sentence without a period, "" if it is the same.
	Text string `json:"text,omitempty"`
	// Short is the reason as part of a line about the service port.
	Short string `json:"short"`
}

// State returns what a frontend of a kind does with new connections, "" without
// a lack.
func (l *Lack) State(kind AddressKind) string {
	switch {
	case l.Of == "":
		return ""
	case l.Of.Rejects():
		return "rejects: " + l.Short
	case kind == ClusterIP:
		return "drops: no usable endpoint on this node, " + l.Short
	}
	return "drops clients outside the cluster: no usable endpoint on this node, " + l.Short
}

// LackOf returns why traffic with a policy reaches no endpoint. of is its
// Reach.Reason, uses are the EndpointUses of the input.
func LackOf(f nft.Family, in *PlanInput, uses []EndpointUse, policy cluster.Policy, of Reason) Lack {
	l := unusedCounts{family: f, in: in, name: in.Service.Name.WithPort(in.Port.Name), count: make(map[Unused]int)}
	for i := range uses {
		u := &uses[i]
		why := u.For(policy)
		switch {
		case why == UnusedDuplicate:
		case of == NoLocalEndpoints && !u.OnThisNode:
			l.elsewhere++
		default:
			l.count[why]++
			l.endpoints++
		}
	}
	found := l.byReason(of)
	found.Of = of
	return found
}

// InFamily returns the lack of a Service that has endpoints of the other family
// only.
func (l Lack) InFamily(service cluster.ServiceName, f, other nft.Family) Lack {
	short := fmt.Sprintf("all endpoints are %s", other.Name())
	return Lack{
		Of: l.Of, Reason: OtherFamily, Short: short,
		Text: fmt.Sprintf("%s has no %s endpoint: %s", service, f.Name(), short),
	}
}

// WithoutSlices returns the lack of a Service that has no EndpointSlice.
func (l Lack) WithoutSlices(service cluster.ServiceName) Lack {
	if l.Reason != NoPods {
		return l
	}
	short := "no EndpointSlice has the label kubernetes.io/service-name=" + service.Name
	return Lack{
		Of: l.Of, Reason: NoSlices, Short: short,
		Text: fmt.Sprintf("%s has no endpoints: %s in namespace %s", service, short, service.Namespace),
	}
}

// unusedCounts counts the endpoints of a service port that a frontend does not
// use, by reason.
type unusedCounts struct {
	family    nft.Family
	in        *PlanInput
	name      string // of the service port
	endpoints int
	elsewhere int // on other nodes
	count     map[Unused]int
}

func (l *unusedCounts) byReason(of Reason) Lack {
	switch of {
	case NoWeight:
		return l.noWeight()
	case NoEndpoints:
		if found, ok := l.alike(); ok {
			return found
		}
	case NoLocalEndpoints:
		if l.endpoints == 0 {
			return Lack{Reason: of, Short: fmt.Sprintf("all %d are on other nodes", l.elsewhere)}
		}
	}
	return Lack{Reason: of, Short: l.list()}
}

// alike returns the reason if it is the same for all endpoints.
func (l *unusedCounts) alike() (Lack, bool) {
	all := func(u Unused) bool { return l.count[u] == l.endpoints }
	name, n, family := l.in.Service.Name, l.endpoints, l.family.Name()
	short := fmt.Sprintf("no pod with an %s address matches the selector %s", family, l.in.Service.Selector)
	switch {
	case n == 0 && l.in.Service.Selector != "":
		return Lack{
			Reason: NoPods, Text: fmt.Sprintf("%s of %s", short, name), Short: short,
		}, true
	case n == 0:
		return Lack{
			Reason: NoSlices, Short: fmt.Sprintf("no selector, and no %s endpoint in an EndpointSlice", family),
			Text: fmt.Sprintf("%s has no selector, and no EndpointSlice has an %s endpoint for it", name, family),
		}, true
	case all(UnusedNoPort):
		return l.noPort(), true
	case all(UnusedTerminating):
		return Lack{
			Reason: AllTerminating, Short: "all endpoints are terminating",
			Text: fmt.Sprintf("all %d endpoints of %s are terminating, and none serves", n, l.name),
		}, true
	case all(UnusedNotReady):
		return Lack{
			Reason: NoneReady, Short: "no endpoint is ready",
			Text: fmt.Sprintf("none of %d endpoints of %s is ready", n, l.name),
		}, true
	}
	return Lack{}, false
}

// noPort is the reason if no EndpointSlice has the port. The name of a port in
// a slice is that of the service port.
func (l *unusedCounts) noPort() Lack {
	p := l.in.Port
	missing := fmt.Sprintf("a port named %q (%s)", p.Name, p.Protocol)
	if p.Name == "" {
		missing = fmt.Sprintf("a %s port without a name", p.Protocol)
	}
	short := "no EndpointSlice has " + missing
	if p.TargetName != "" {
		short += fmt.Sprintf(": no pod has a port named %q (targetPort)", p.TargetName)
	}
	has := "no ports"
	if ports := l.slicePorts(); len(ports) > 0 {
		has = "only " + strings.Join(ports, ", ")
	}
	return Lack{
		Reason: MissingPort, Short: short,
		Text: fmt.Sprintf("%s has no endpoint with its port: %s; they have %s", l.name, short, has),
	}
}

// slicePorts lists the ports of the endpoints, at most ten.
func (l *unusedCounts) slicePorts() (texts []string) {
	const limit = 10
	for _, e := range l.in.Endpoints {
		if !l.family.Of(e.Addr) {
			continue
		}
		for _, p := range e.Ports {
			text := strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Port, p.Protocol))
			if len(texts) < limit && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// noWeight is the reason if the endpoints that a client may use have weight 0.
func (l *unusedCounts) noWeight() Lack {
	hinted := l.count[UnusedZoneHints] + l.count[UnusedNodeHints]
	if hinted == 0 {
		return Lack{Reason: NoWeight, Short: l.list()}
	}
	short := fmt.Sprintf("hints keep this node from %d endpoints, and the others have weight 0", hinted)
	return Lack{Reason: HintedElsewhere, Short: short, Text: l.name + ": " + short}
}

// list counts the endpoints by the reason why they are not used.
func (l *unusedCounts) list() string {
	var texts []string
	for why, n := range l.count {
		texts = append(texts, fmt.Sprintf("%d of %d: %s", n, l.endpoints, why.Text()))
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}
