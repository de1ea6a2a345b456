package doctor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/eject/probe"
)

// Limits of the probes of a run. With all of them, a namespace gets as many in
// a second as eject.MaxProbesPerNamespace, and the node eject.MaxProbes.
const (
	probeTime          = 3 * time.Second
	probesPerNamespace = 30
	allProbes          = 150
)

// probed is a TCP endpoint that new connections reach, with what came back for
// the probe of this node.
type probed struct {
	cluster.PortName
	addr  netip.AddrPort
	node  string
	pod   string
	reply probe.Reply
}

// checkEndpoints probes a sample of the endpoints that TCP connections use.
func checkEndpoints(ctx context.Context, n *host) Finding {
	if n.Proxy == nil || n.Endpoints == nil {
		return n.withoutProxy()
	}
	endpoints, all, err := n.sampleEndpoints(ctx)
	if err != nil {
		return unknown(err)
	}
	if err := probeAll(ctx, endpoints); err != nil {
		return unknown(err)
	}
	return endpointsFinding(endpoints, all)
}

// sampleEndpoints returns a random sample of the endpoints that may be probed,
// and the number of all. Namespaces take turns, and the service ports of a
// namespace.
func (n *host) sampleEndpoints(ctx context.Context) (sample []*probed, all int, err error) {
	namespaces, seen := make(map[string][]*probed), make(map[netip.AddrPort]bool)
	for p, err := range n.Endpoints(ctx) {
		if err != nil {
			return nil, 0, err
		}
		all += p.Used
		for _, e := range p.Sample {
			if seen[e.Address] {
				all-- // an endpoint of another service port, too
				continue
			}
			seen[e.Address] = true
			namespaces[p.Service.Namespace] = append(namespaces[p.Service.Namespace], &probed{
				PortName: p.Service.WithPort(p.Port), addr: e.Address, node: e.Node, pod: e.Pod,
			})
		}
	}
	var turns [probesPerNamespace][]*probed
	for _, found := range namespaces {
		shuffle(found)
		for i, e := range found[:min(len(found), probesPerNamespace)] {
			turns[i] = append(turns[i], e)
		}
	}
	for _, turn := range turns {
		shuffle(turn)
		sample = append(sample, turn...)
	}
	return sample[:min(len(sample), allProbes)], all, nil
}

func shuffle(all []*probed) {
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// probeAll probes endpoints, spread over probeTime, and probes those again that
// did not answer: one SYN can be lost.
func probeAll(ctx context.Context, endpoints []*probed) error {
	if err := probeEach(ctx, endpoints, probeTime); err != nil {
		return err
	}
	silent := slices.DeleteFunc(slices.Clone(endpoints), func(e *probed) bool { return e.reply != probe.Silence })
	return probeEach(ctx, silent, probeTime/3)
}

func probeEach(ctx context.Context, endpoints []*probed, within time.Duration) error {
	const second = time.Second
	gap := min(second/eject.MaxProbesPerNamespace, within/time.Duration(max(len(endpoints), 1)))
	replied := make(chan struct{}, len(endpoints))
	for _, e := range endpoints {
		probe.Ask(e.addr, eject.ProbeTimeout, func(r probe.Reply) {
			e.reply = r
			replied <- struct{}{}
		})
		select {
		case <-time.After(gap):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for range endpoints {
		<-replied
	}
	return nil
}

// answered reports whether the endpoint answered, also by a refusal.
func (e *probed) answered() bool { return e.reply == probe.Accepted || e.reply == probe.Refused }

// endpointsFinding names the endpoints that refuse, and those that are silent
// while others of the same Service or node answer.
func endpointsFinding(endpoints []*probed, all int) Finding {
	var refused, silent, unsure []string
	compared := compare(endpoints)
	for _, e := range endpoints {
		switch {
		case e.reply == probe.NotSent, e.reply == probe.NoRoute, e.reply == probe.Accepted:
		case e.reply == probe.Refused:
			refused = append(refused, e.String()+": refuses connections (RST)")
		case compared.of(e) == "":
			unsure = append(unsure, fmt.Sprintf("%s: no answer (%s), and no other one to compare it with answers", e,
				e.reply))
		default:
			silent = append(silent, fmt.Sprintf("%s: no answer (%s), while %s", e, e.reply, compared.of(e)))
		}
	}
	unanswered := append(sortedLines(silent), sortedLines(unsure)...)
	sent := fmt.Sprintf("%d of %d TCP endpoints", len(endpoints), all)
	const (
		onRefusal = "compare targetPort of the Service with the port on which the process listens, and look at " +
			"the log of the pod: the process crashed, or listens on another port or only on 127.0.0.1"
		onSilence = "check the pod and its node, and NetworkPolicies that drop packets of nodes; if the endpoint " +
			"answers from its own node, check the route between both nodes"
	)
	switch {
	case all == 0:
		return skipped("no TCP endpoint is used")
	case len(refused) > 0:
		finding := warn(fmt.Sprintf("%d endpoints refuse connections, %d are silent (%s were probed)", len(refused),
			len(unanswered), sent), onRefusal)
		if len(unanswered) > 0 {
			finding.Remedy += "; silent ones: " + onSilence
		}
		return finding.With(append(sortedLines(refused), unanswered...)...)
	case len(silent) > 0:
		return warn(fmt.Sprintf("%d endpoints are silent (%s were probed)", len(unanswered), sent), onSilence).
			With(unanswered...)
	case len(unsure) > 0:
		return info(fmt.Sprintf("%d endpoints are silent (%s were probed), and no other one of their Services and "+
			"nodes answers: they may answer clients nevertheless", len(unsure), sent), onSilence).
			With(unanswered...)
	}
	return ok(sent + " were probed, and none refuses connections or is silent")
}

// String returns the service port and the endpoint.
func (e *probed) String() string {
	text := fmt.Sprintf("%s %s", e.PortName, e.addr)
	if e.pod != "" {
		text += " (pod " + e.pod + ")"
	}
	if e.node != "" {
		text += " on node " + e.node
	}
	return text
}

// comparison has the number of endpoints that answered.
type comparison struct {
	services map[cluster.ServiceName]int
	nodes    map[string]int
}

func compare(endpoints []*probed) comparison {
	c := comparison{make(map[cluster.ServiceName]int), make(map[string]int)}
	for _, e := range endpoints {
		if !e.answered() {
			continue
		}
		c.services[e.ServiceName]++
		if e.node != "" {
			c.nodes[e.node]++
		}
	}
	return c
}

// of returns which endpoints answered that are like a silent one, "" if none.
func (c comparison) of(e *probed) string {
	service, node := c.services[e.ServiceName], c.nodes[e.node]
	switch {
	case service > 0:
		return fmt.Sprintf("%d of the same Service answer", service)
	case node > 0:
		return fmt.Sprintf("%d on the same node answer", node)
	}
	return ""
}

// checkDeadEndpoints checks that no endpoint is ejected.
func checkDeadEndpoints(_ context.Context, n *host) Finding {
	switch {
	case n.Proxy == nil:
		return n.withoutProxy()
	case !n.Proxy.Eject && n.Proxy.HealthChecks.Endpoints == 0:
		return skipped("the proxy ejects no endpoints (--eject=false)")
	}
	const compared = ": compared its endpoints with each other: "
	var details, unsure []string
	for _, name := range n.Proxy.Blind {
		unsure = append(unsure, name+compared+"none answers probes of this node")
	}
	ejected := 0
	for i := range n.Proxy.Families {
		f := &n.Proxy.Families[i]
		ejected += f.Ejected
		for _, name := range f.AllUsed {
			unsure = append(unsure, name+compared+"more than half do not answer this node")
		}
		for _, name := range f.NoneHealthy {
			unsure = append(unsure, name+": no endpoint passes the health checks of this node")
		}
		for _, e := range f.Ejections {
			details = append(details, fmt.Sprintf("%s %s: %s", e.Name, e.Endpoint, e.Ejection))
		}
	}
	switch {
	case len(unsure) > 0:
		return warn(fmt.Sprintf("most endpoints of %d service ports do not answer on their port, or fail health "+
			"checks, so some or all of these get new connections", len(unsure)),
			"if the pods answer on other ports (the check endpoints compares them), look at the process that should "+
				"listen and at network policies; otherwise at the network of this node: connect to the endpoints from "+
				"this node and from another one, for example with curl").
			With(append(unsure, details...)...)
	case ejected > 0:
		return warn(fmt.Sprintf("%d endpoints are ejected: they answer neither clients nor this node, or fail health "+
			"checks", ejected),
			"check the pod of the endpoint, or its server, and its node; if it answers from other nodes, check the "+
				"route between both nodes, and network policies that drop packets of nodes").With(details...)
	}
	return ok("no endpoint is ejected")
}
