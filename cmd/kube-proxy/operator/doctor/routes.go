package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/route"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// checkRoutes looks up the routes to endpoints of each node, and back to a
// client outside.
func checkRoutes(ctx context.Context, n *host) Finding {
	nodes, err := n.endpoints(ctx)
	if err != nil {
		return unknown(err)
	}
	routes, err := route.Open()
	if err != nil {
		return unknown(err)
	}
	defer routes.Close()
	r := &routeCheck{survey: route.NewSurvey(routes, n.Root)}
	err = node.InTables(func(k *node.Kernel) error {
		ranges, err := k.PodRanges()
		r.pods = append(r.pods, ranges...)
		return err
	})
	if err != nil && !errors.Is(err, node.ErrNoTable) {
		return unknown(err)
	}
	for i := range nodes {
		if err := r.check(&nodes[i]); err != nil {
			return unknown(err)
		}
	}
	return r.finding(nodes)
}

// endpoints returns endpoints of each node. Without a running proxy, the tables
// have some endpoints, whose nodes are unknown.
func (n *host) endpoints(ctx context.Context) (nodes []answer.NodeEndpoints, err error) {
	if n.Nodes != nil && n.Proxy != nil {
		for found, err := range n.Nodes(ctx) {
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, *found)
		}
		return nodes, nil
	}
	const limit = 16
	var unplaced answer.NodeEndpoints
	for _, f := range families() {
		rows, err := endpointRows(f)
		if err != nil {
			return nil, err
		}
		for _, row := range rows[:min(len(rows), limit)] {
			_, to, ok := ruleset.TargetOf(f, row)
			if ok && !slices.Contains(unplaced.Addresses, to.Addr()) {
				unplaced.Addresses = append(unplaced.Addresses, to.Addr())
			}
		}
	}
	if len(unplaced.Addresses) > 0 {
		nodes = append(nodes, unplaced)
	}
	return nodes, nil
}

// routeCheck collects the causes why packets to endpoints do not arrive.
type routeCheck struct {
	survey  *route.Survey
	checked int
	cut     bool // no endpoint of a node can be reached
	causes  []ruleset.Reason
	lines   []string

	pods []netip.Prefix // by which the rules recognize pods
	// own is the number of endpoints on other nodes with a route of their own.
	// byDefault are the others, which have a default route only.
	own       int
	byDefault []string
}

// check looks up the routes to the endpoints of a node.
func (r *routeCheck) check(at *answer.NodeEndpoints) error {
	failed := 0
	for _, addr := range at.Addresses {
		cause, err := r.causeOf(addr, at.ThisNode)
		if err != nil {
			return err
		}
		r.checked++
		if cause.Code == "" {
			if err := r.followDefault(addr, at); err != nil {
				return err
			}
			continue
		}
		failed++
		r.causes = append(r.causes, cause)
		r.lines = append(r.lines, describeNode(at)+cause.Text)
	}
	r.cut = r.cut || failed > 1 && failed == len(at.Addresses)
	return nil
}

// followDefault finds out whether packets to a pod of another node leave by a
// default route. An endpoint that may be no pod can be anywhere.
func (r *routeCheck) followDefault(addr netip.Addr, at *answer.NodeEndpoints) error {
	isPod := at.Node != ""
	if len(r.pods) > 0 {
		isPod = slices.ContainsFunc(r.pods, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	if !isPod || at.ThisNode {
		return nil
	}
	facts, err := r.survey.Facts(route.Packet{Destination: addr, OfNode: true})
	if err != nil || facts.There.Local {
		return err
	}
	byDefault, err := r.survey.ByDefault(addr)
	if !byDefault || err != nil {
		if at.Node != "" { // otherwise it can be on this node
			r.own++
		}
		return err
	}
	line := fmt.Sprintf("%spackets to %s leave through %s", describeNode(at), addr, facts.There.Out)
	if facts.There.Via.IsValid() {
		line += fmt.Sprintf(" to the gateway %s", facts.There.Via)
	}
	r.byDefault = append(r.byDefault, line)
	return err
}

func describeNode(at *answer.NodeEndpoints) string {
	switch {
	case at.ThisNode:
		return "this node: "
	case at.Node != "":
		return "node " + at.Node + ": "
	}
	return ""
}

// causeOf returns why packets from this node, or from a client outside, do not
// reach an endpoint.
func (r *routeCheck) causeOf(endpoint netip.Addr, ofThisNode bool) (ruleset.Reason, error) {
	facts, err := r.survey.Facts(route.Packet{Destination: endpoint, OfNode: true})
	cause := route.Decide(&facts)
	if ofThisNode && cause.Code == "" && facts.There.Via.IsValid() {
		cause = ruleset.Reason{
			Code: ruleset.NoRoute,
			Text: fmt.Sprintf("pod %s has no route of its own: packets leave this node through %s to %s", endpoint,
				facts.There.Out, facts.There.Via),
			Remedy: route.AddRoute,
		}
	}
	if cause.Code != "" || err != nil {
		return cause, err
	}
	client := node.Outside(nft.FamilyOf(endpoint))
	in, err := r.survey.Interface(client)
	if err != nil || in == "lo" { // no client outside can connect
		return ruleset.Reason{}, nil
	}
	facts, err = r.survey.Facts(route.Packet{Source: client, Destination: endpoint, In: in})
	if cause = route.Decide(&facts); cause.Code == ruleset.ForwardingOff { // the check ip-forward reports it
		cause = ruleset.Reason{}
	}
	return cause, err
}

func (r *routeCheck) finding(nodes []answer.NodeEndpoints) Finding {
	of := fmt.Sprintf(" of %d nodes", len(nodes))
	if len(nodes) == 1 && nodes[0].Node == "" {
		of = ""
	}
	switch {
	case r.checked == 0:
		return skipped("no endpoint is known")
	case len(r.causes) == 0 && len(r.byDefault) > 0:
		return r.defaultFinding()
	case len(r.causes) == 0:
		return ok(fmt.Sprintf("packets to %d endpoints%s have a route, and so have the answers", r.checked, of))
	}
	reason := fmt.Sprintf("packets to %d of %d endpoints, or the answers, do not arrive", len(r.causes), r.checked)
	finding := warn(reason, r.causes[0].Remedy)
	if r.cut {
		finding = fail(reason, r.causes[0].Remedy)
	}
	return finding.With(sortedLines(r.lines)...)
}

// defaultFinding is the finding if only a default route leads to pods of other
// nodes. Networks of clouds route pods themselves, but then all pods.
func (r *routeCheck) defaultFinding() Finding {
	const remedy = "look at the network plugin, which adds a route for each node, unless the gateway routes pods " +
		"itself, as in networks of clouds: compare with ip route on a node that reaches them"
	reason := fmt.Sprintf("packets to %d endpoints on other nodes leave by the default route", len(r.byDefault))
	finding := info(reason, remedy)
	if r.own > 0 {
		finding = warn(fmt.Sprintf("%s, while %d have routes of their own", reason, r.own), remedy)
	}
	return finding.With(sortedLines(r.byDefault)...)
}

// dropsFromOutside returns why packets from clients outside that arrive on an
// interface are dropped, "" if they are not.
func dropsFromOutside(survey *route.Survey, name string) (string, error) {
	client := node.Outside(nft.IPv4)
	to, err := survey.Address(name)
	if err != nil || !to.IsValid() {
		return "", err
	}
	facts, err := survey.Facts(route.Packet{Source: client, Destination: to, In: name})
	if err != nil {
		return "", err
	}
	cause := route.Decide(&facts)
	if cause.Code != ruleset.ReversePath {
		return "", nil
	}
	if facts.There.ToSource == "" {
		return name + ": this node has no route to clients outside", nil
	}
	return fmt.Sprintf("%s: the route to clients outside leads through %s", name, facts.There.ToSource), nil
}

// outsideDrops returns the interfaces that drop packets from clients outside.
func (n *host) outsideDrops(names []string) (lines []string, err error) {
	var pods seenPods
	if _, err := pods.findInterfaces(); err != nil {
		return nil, err
	}
	routes, err := route.Open()
	if err != nil {
		return nil, err
	}
	defer routes.Close()
	survey := route.NewSurvey(routes, n.Root)
	var errs []error
	for _, name := range names {
		if slices.Contains(pods.interfaces, name) {
			continue
		}
		line, err := dropsFromOutside(survey, name)
		if errs = append(errs, err); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, errors.Join(errs...)
}
