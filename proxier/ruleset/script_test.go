package ruleset

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/script"
)

// story is the state of a script: the node. Each step prints the result of a
// function.
type story struct {
	t    testing.TB
	node *cluster.Node
}

func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		s := &story{e.T, &cluster.Node{Name: "here", Zone: "a"}}
		return script.Steps(map[string]any{
			"node": s.setNode, "candidates": s.candidates, "usable": s.usable, "unused": s.unused,
			"arrange": s.arrange, "share": s.share, "size": s.size, "nodeport-addresses": s.nodePortAddresses,
			"program": s.program, "sources": s.sources, "reach": s.reach, "affinity-chains": s.affinityChains,
			"lack": s.lack, "remainder": s.remainder,
		}), nil
	}})
}

// fields sets the fields of a struct. It returns the other words.
func (s *story) fields(of any, args []string) []string {
	rest, err := script.SetFields(of, args)
	if err != nil {
		s.t.Fatal(err)
	}
	return rest
}

// setNode sets fields of the node. Others become empty.
func (s *story) setNode(args ...string) string {
	s.node = &cluster.Node{}
	if rest := s.fields(s.node, args); len(rest) > 0 {
		s.t.Errorf("unknown fields %q", rest)
	}
	return ""
}

// candidates returns the targets that endpoints are, with their conditions.
func (s *story) candidates(args ...string) string {
	var out []string
	for _, c := range candidates(nil, endpointsFrom(strings.Join(args, " ")), nft.IPv4, port80, s.node) {
		words := []string{fmt.Sprint(c.Addr.As4()[3], ":", c.Port)}
		for word, is := range map[string]bool{
			"here": c.Here, "ready": c.Ready, fmt.Sprint("weight ", c.Target.Weight.Int()): c.Target.Weight.Int() != 1,
		} {
			if is {
				words = append(words, word)
			}
		}
		slices.Sort(words)
		out = append(out, strings.Join(words, " "))
	}
	return strings.Join(out, ", ")
}

// usable returns the endpoints for the policies Cluster and Local.
func (s *story) usable(args ...string) string {
	all := candidates(nil, endpointsFrom(strings.Join(args, " ")), nft.IPv4, port80, s.node)
	return fmt.Sprintf("Cluster %s, Local %s",
		lastBytes(usableForCluster(all, s.node)), lastBytes(usableForLocal(all, s.node)))
}

// unused returns the endpoints that are not used, with the reasons for the
// policies Cluster and Local. The first word can be another port.
func (s *story) unused(args ...string) string {
	port := port80
	args = s.fields(&port, args)
	var out []string
	in := &PlanInput{Node: s.node, Port: port, Endpoints: endpointsFrom(strings.Join(args, " "))}
	for _, u := range EndpointUses(nft.IPv4, in) {
		if u.Cluster != "" || u.Local != "" {
			out = append(out, fmt.Sprintf("%d %s/%s", u.Addr.As4()[3], u.Cluster, u.Local))
		}
	}
	return strings.Join(out, ", ")
}

// lack returns why no endpoint is used: the reason of the plan, a more precise
// one, its short text, and its sentence.
// [internalPolicy=Local] [selector=SELECTOR] [targetName=NAME] ENDPOINT…
func (s *story) lack(args ...string) string {
	in := PlanInput{
		Node: s.node, Port: cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80},
		Service: &cluster.Service{
			Name: cluster.ServiceName{Namespace: "shop", Name: "web"}, Balance: cluster.BalanceSourceHash,
			Families: []nft.Family{nft.IPv4}, ClusterIPs: []netip.Addr{addr("10.96.0.10")},
		},
	}
	in.Endpoints = endpointsFrom(strings.Join(s.fields(in.Service, s.fields(&in.Port, args)), " "))
	policy := in.Service.InternalPolicy
	of := planOf(s.t, newRuleset(s.t, Config{}, nft.IPv4), in).Reach(policy).Reason
	l := LackOf(nft.IPv4, &in, EndpointUses(nft.IPv4, &in), policy, of)
	return strings.TrimSuffix(fmt.Sprintf("%s %s: %s | %s", l.Of, l.Code, l.Short, l.Text), " | ")
}

// remainder returns the remainder of a plan if another one cannot be written:
// BEFORE… to WANTED…, with the fields of planFrom, or none.
func (s *story) remainder(words ...string) string {
	at := slices.Index(words, "to")
	before := s.planFrom(words[:at])
	if before != nil {
		for _, targets := range [][]Target{before.Cluster, before.Local} {
			for i := range targets {
				targets[i].ID = uint32(targets[i].Addr.As4()[3]) // those of the result are of this plan
			}
		}
	}
	p := Remainder(before, s.planFrom(words[at+1:]))
	if p == nil {
		return "none"
	}
	text := p.Service.Name.Name
	for _, f := range p.Frontends {
		text += fmt.Sprint(" ", f.Kind, " ", f.Addr, " ", f.Policy)
	}
	for _, t := range p.Cluster {
		text += fmt.Sprint(" endpoint ", t.ID)
	}
	for _, t := range p.Local {
		text += fmt.Sprint(" local ", t.ID)
	}
	return text + fmt.Sprintf(" from %v %v", p.Sources, p.Guarded)
}

// planFrom returns a plan with these fields.
func (s *story) planFrom(words []string) *Plan {
	if words[0] == "none" {
		return nil
	}
	var fields struct {
		Of                             string
		External, LB, Endpoints, Local []netip.Addr
		Weightless                     []netip.Addr // of these endpoints
		Sources                        []netip.Prefix
	}
	s.fields(&fields, words)
	p := &Plan{
		Service: &cluster.Service{Name: cluster.ServiceName{Name: fields.Of}},
		Sources: fields.Sources, Guarded: fields.Sources != nil,
	}
	for _, a := range fields.External {
		p.Frontends = append(p.Frontends, ServedFrontend{Frontend: Frontend{Addr: a, Port: 80}, Kind: ExternalIP})
	}
	for _, a := range fields.LB {
		at := Frontend{Addr: a, Port: 80}
		p.Frontends = append(p.Frontends, ServedFrontend{at, LoadBalancerIP, cluster.PolicyLocal})
	}
	target := func(a netip.Addr) Target {
		t := Target{Addr: a, Port: 8080}
		if slices.Contains(fields.Weightless, a) {
			t.Weight = cluster.WeightOf(0)
		}
		return t
	}
	for _, a := range fields.Endpoints {
		p.Cluster = append(p.Cluster, target(a))
	}
	for _, a := range fields.Local {
		p.Local = append(p.Local, target(a))
	}
	return p
}

// arrange returns the order of targets after another one: BEFORE… to NOW…
func (s *story) arrange(args ...string) string {
	before, now, _ := strings.Cut(strings.Join(args, " "), "to")
	return lastBytes(arrange(targetsFrom(before), targetsFrom(now)))
}

// share returns the part of a Service that is left out, and checks that the
// rest is within the budget.
func (s *story) share(args ...string) string {
	var size sized
	s.fields(&size, args)
	svc, endpoints := size.service()
	share := ShareOf(nft.IPv4, svc, endpoints, (&Config{}).Slots(svc), DefaultServiceRows)
	if got := rowsOf(s.t, svc, endpoints, share); got > DefaultServiceRows || got > share.Rows {
		s.t.Errorf("%q: got %d rows, want at most %d and %d", args, got, share.Rows, DefaultServiceRows)
	}
	if share.Whole() != (share.String() == "") {
		s.t.Errorf("%q: got whole %v, left out %q", args, share.Whole(), share.String())
	}
	return share.String()
}

// size returns the rows of a service port.
func (s *story) size(args ...string) string {
	size := struct{ Frontends, Lists, Endpoints, Hairpin, Sources, Slots, RuleCost int }{}
	s.fields(&size, args)
	return fmt.Sprint(portSize{
		frontends: size.Frontends, lists: size.Lists, endpoints: size.Endpoints, hairpin: size.Hairpin,
		sources: size.Sources, slots: size.Slots, ruleCost: size.RuleCost,
	}.rows())
}

// nodePortAddresses returns the addresses of NodePorts for each family, whether
// localhost is among them, and whether the CIDRs cover the family:
// [primary] CIDR…
func (s *story) nodePortAddresses(args ...string) string {
	var a NodePortAddresses
	if len(args) > 0 && args[0] == "primary" {
		a.Primary, args = true, args[1:]
	}
	a.CIDRs = prefixes(strings.Join(args, " "))
	var out []string
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		words := []string{f.String()}
		ips := a.on(f, s.node)
		if slices.Contains(ips, f.Unspecified()) {
			words = append(words, "all")
		} else {
			words = append(words, strings.Trim(fmt.Sprint(ips), "[]"))
		}
		if a.Loopback(f) {
			words = append(words, "loopback")
		}
		if !a.Covers(f) {
			words = append(words, "uncovered")
		}
		out = append(out, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
	}
	return strings.Join(out, ", ")
}

// program returns the addresses of NodePorts and the loopback addresses of a
// program: CIDR… It checks that the set nodeport-ips exists and has rows only
// if it is needed.
func (s *story) program(args ...string) string {
	addrs := NodePortAddresses{CIDRs: prefixes(strings.Join(args, " "))}
	rules := newRuleset(s.t, Config{NodePortAddresses: addrs}, nft.IPv4)
	p := rules.MakeProgram(s.node)
	want := rules.layout.fixedRows()
	isAll := slices.Equal(p.NodePortAddrs, []netip.Addr{addr("0.0.0.0")})
	for _, ip := range p.NodePortAddrs {
		if !isAll {
			want = append(want, nft.Row{Set: rules.layout.nodePortIPs, Key: nft.Tuple{}.Addr(ip)})
		}
	}
	exists := slices.Contains(p.Table.Sets, rules.layout.nodePortIPs)
	if !slices.Equal(p.Rows, want) || p.NodePortAddrs == nil || exists == isAll {
		s.t.Errorf("%q: got rows %v, want %v; set nodeport-ips %v", args, p.Rows, want, exists)
	}
	out := strings.Trim(fmt.Sprint(p.NodePortAddrs), "[]")
	if len(p.LoopbackAddrs) > 0 {
		out += ", loopback " + strings.Trim(fmt.Sprint(p.LoopbackAddrs), "[]")
	}
	return out
}

// sources returns the sources of a Service with source ranges. The word empty
// stands for a list without a valid range.
func (s *story) sources(args ...string) string {
	svc := &cluster.Service{LoadBalancerIPs: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}}
	if len(args) > 0 {
		svc.SourceRanges = []netip.Prefix{}
	}
	if len(args) > 0 && args[0] != "empty" {
		svc.SourceRanges = prefixes(strings.Join(args, " "))
	}
	got, guarded := sourcesFor(nft.IPv4, &PlanInput{Node: s.node, Service: svc})
	return fmt.Sprintf("%v guarded %v", got, guarded)
}

// reach returns how many endpoints connections reach for the policies Cluster
// and Local, or why none: the weights of all endpoints, of the endpoints on
// this node, and sticky for session affinity.
func (s *story) reach(args ...string) string {
	p := &Plan{Service: &cluster.Service{}}
	for _, arg := range args {
		kind, weights, _ := strings.Cut(arg, "=")
		targets := map[string]*[]Target{"all": &p.Cluster, "here": &p.Local}[kind]
		if targets == nil {
			p.Service.AffinityTimeout = 1 // weights have no effect
			continue
		}
		for i, w := range strings.Split(weights, ",") {
			n, _ := strconv.Atoi(w)
			t := Target{Addr: addr("10.0.0.1"), Port: uint16(i + 1), Weight: cluster.WeightOf(n)}
			*targets = append(*targets, t)
		}
	}
	if err := p.setSlots(); err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%v, %v", p.Reach(cluster.PolicyCluster), p.Reach(cluster.PolicyLocal))
}

// affinityChains returns the kinds of the chains of a service port with session
// affinity and these frontends. ChainNames and AffinitySet agree.
func (s *story) affinityChains(args ...string) string {
	kinds := map[string]ServedFrontend{
		"ClusterIP":       {Kind: ClusterIP, Frontend: Frontend{Addr: addr("10.96.0.1")}},
		"ClusterIP,Local": {Kind: ClusterIP, Frontend: Frontend{Addr: addr("10.96.0.1")}, Policy: cluster.PolicyLocal},
		"NodePort":        {},
		"NodePort,Local":  {Policy: cluster.PolicyLocal},
	}
	plan := affinityPlan()
	for _, arg := range args {
		switch f, ok := kinds[arg]; {
		case ok:
			plan.Frontends = append(plan.Frontends, f)
		case arg == "no-affinity":
			plan.Service = &cluster.Service{Name: plan.Service.Name}
		case arg == "no-endpoints":
			plan.Cluster, plan.Local = nil, nil
		case arg == "no-plan":
			plan = nil
		default:
			s.t.Errorf("unknown word %q, want %q", arg, slices.Collect(maps.Keys(kinds)))
		}
	}
	rules := newRuleset(s.t, Config{}, nft.IPv4)
	var names, out []string
	for _, c := range rules.Chains(plan) {
		names = append(names, c.Name)
		out = append(out, strings.TrimSuffix(c.Name, ".ns.svc.tcp.http"))
	}
	if got := rules.ChainNames(plan); !slices.Equal(got, names) {
		s.t.Errorf("%q: ChainNames: got %q, want %q", args, got, names)
	}
	if set := rules.AffinitySet(plan); (set != nil) != (names != nil) {
		s.t.Errorf("%q: got affinity set %v", args, set)
	}
	return strings.Join(out, " ")
}
