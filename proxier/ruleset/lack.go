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
	// Of is the reason in the Reach, which decides what happens to packets.
	Of Code `json:"of"`
	// Reason is more precise, or the same. It then has no text.
	Reason
	// Short is the reason as part of a line about the service port.
	Short string `json:"short"`
}

// lack returns the lack for a reason, with its text.
func (c Code) lack(short, format string, args ...any) Lack {
	return Lack{Reason: c.With(fmt.Sprintf(format, args...)), Short: short}
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

// LackOf returns why traffic with a policy reaches no endpoint for a reason of
// Reach. uses are the EndpointUses of the input.
func LackOf(f nft.Family, in *PlanInput, uses []EndpointUse, policy cluster.Policy, of Code) Lack {
	l := unusedCounts{family: f, in: in, name: in.Service.Name.WithPort(in.Port.Name), count: make(map[Code]int)}
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
	found := OtherFamily.lack(short, "%s has no %s endpoint: %s", service, f.Name(), short)
	found.Of = l.Of
	return found
}

// WithoutSlices returns the lack of a Service that has no EndpointSlice.
func (l Lack) WithoutSlices(service cluster.ServiceName) Lack {
	if l.Code != NoPods {
		return l
	}
	short := "no EndpointSlice has the label kubernetes.io/service-name=" + service.Name
	found := NoSlices.lack(short, "%s has no endpoints: %s in namespace %s", service, short, service.Namespace)
	found.Of = l.Of
	return found
}

// unusedCounts counts the endpoints of a service port that a frontend does not
// use, by reason.
type unusedCounts struct {
	family    nft.Family
	in        *PlanInput
	name      string // of the service port
	endpoints int
	elsewhere int // on other nodes
	count     map[Code]int
}

func (l *unusedCounts) byReason(of Code) Lack {
	switch of {
	case NoWeight:
		return l.noWeight()
	case NoEndpoints:
		if found, ok := l.alike(); ok {
			return found
		}
	case NoLocalEndpoints:
		if l.endpoints == 0 {
			return of.lack(fmt.Sprintf("all %d are on other nodes", l.elsewhere), "")
		}
	}
	return of.lack(l.list(), "")
}

// alike returns the reason if it is the same for all endpoints.
func (l *unusedCounts) alike() (Lack, bool) {
	all := func(u Code) bool { return l.count[u] == l.endpoints }
	name, n, family := l.in.Service.Name, l.endpoints, l.family.Name()
	short := fmt.Sprintf("no pod with an %s address matches the selector %s", family, l.in.Service.Selector)
	switch {
	case n == 0 && l.in.Service.Selector != "":
		return NoPods.lack(short, "%s of %s", short, name), true
	case n == 0:
		return NoSlices.lack(fmt.Sprintf("no selector, and no %s endpoint in an EndpointSlice", family),
			"%s has no selector, and no EndpointSlice has an %s endpoint for it", name, family), true
	case all(UnusedNoPort):
		return l.noPort(), true
	case all(UnusedTerminating):
		return AllTerminating.lack("all endpoints are terminating",
			"all %d endpoints of %s are terminating, and none serves", n, l.name), true
	case all(UnusedNotReady):
		return NoneReady.lack("no endpoint is ready", "none of %d endpoints of %s is ready", n, l.name), true
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
	return MissingPort.lack(short, "%s has no endpoint with its port: %s; they have %s", l.name, short, has)
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
		return NoWeight.lack(l.list(), "")
	}
	short := fmt.Sprintf("hints keep this node from %d endpoints, and the others have weight 0", hinted)
	return HintedElsewhere.lack(short, "%s: %s", l.name, short)
}

// list counts the endpoints by the reason why they are not used.
func (l *unusedCounts) list() string {
	var texts []string
	for why, n := range l.count {
		texts = append(texts, fmt.Sprintf("%d of %d: %s", n, l.endpoints, why.Text(Facts{})))
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}
