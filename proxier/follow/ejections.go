package follow

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// ejectionEvents reports the endpoints of an address family that the rules
// begin to avoid because they answer nothing or are unhealthy, and those that
// they use again.
type ejectionEvents struct {
	idle
	node   string
	events cluster.EventRecorder
	total  prometheus.Counter
	// ejected are the endpoints that the rules avoid, and those on trial. open
	// is why the rules of service ports use endpoints that are ejected.
	ejected map[portKey][]netip.AddrPort
	open    map[portKey]string
}

func newEjectionEvents(config *Config, total *prometheus.CounterVec, f nft.Family) *ejectionEvents {
	return &ejectionEvents{
		node: config.NodeName, events: config.Events, total: total.WithLabelValues(f.Name()),
		ejected: make(map[portKey][]netip.AddrPort), open: make(map[portKey]string),
	}
}

func (e *ejectionEvents) committed(c *table.Commit) {
	for _, change := range c.Changes {
		plan := cmp.Or(change.After, change.Before)
		if plan == nil {
			continue
		}
		key := keyOf(c.Family, plan)
		if change.After == nil {
			delete(e.ejected, key)
			delete(e.open, key)
			continue
		}
		e.compare(key, change.After)
	}
}

// compare reports the differences between the last plan of a service port and a
// new one.
func (e *ejectionEvents) compare(key portKey, plan *ruleset.Plan) {
	before, open := e.ejected[key], e.whyOpen(plan)
	all := plan.Ejected.All()
	if len(before) == 0 && plan.Ejected == nil && open == e.open[key] {
		return
	}
	now := make([]netip.AddrPort, 0, len(all))
	var begun []cluster.Ejection
	for _, one := range all {
		now = append(now, one.Endpoint)
		if !slices.Contains(before, one.Endpoint) {
			begun = append(begun, one)
		}
	}
	if plan.Ejected != nil { // their ejections have not ended
		now = append(now, plan.Ejected.OnTrial...)
	}
	forCluster, forLocal := plan.Usable()
	ended := slices.DeleteFunc(slices.Clone(before), func(a netip.AddrPort) bool {
		used := slices.Contains(forCluster, a) || slices.Contains(forLocal, a)
		return !used || slices.Contains(now, a)
	})
	e.total.Add(float64(len(begun)))
	if open != "" && open != e.open[key] {
		e.record(plan, cluster.ReasonNotEjected, open)
	} else {
		e.recordBegun(plan, begun, false, "clients got no answer")
		e.recordBegun(plan, begun, true, "health checks failed")
	}
	if len(ended) > 0 && open == "" {
		e.record(plan, cluster.ReasonReturned, fmt.Sprintf("%s of service port %s: new connections from node %s again",
			list(ended), plan.Name(), e.node))
	}
	e.remember(key, now, open)
}

// whyOpen returns why the rules of a service port use endpoints that are
// ejected, "" if they do not.
func (e *ejectionEvents) whyOpen(plan *ruleset.Plan) string {
	switch {
	case plan.Ejected == nil:
		return ""
	case plan.Ejected.NoneHealthy:
		return fmt.Sprintf("No endpoint of service port %s passes the health checks of node %s. Those that failed "+
			"last get new connections", plan.Name(), e.node)
	case plan.Ejected.Open:
		return fmt.Sprintf("More than half of the endpoints of service port %s do not answer clients on node %s. "+
			"None is ejected, because only these were compared: the cause can be all pods, their port or the network "+
			"of the node", plan.Name(), e.node)
	}
	return ""
}

// recordBegun records the ejections that began for a reason.
func (e *ejectionEvents) recordBegun(plan *ruleset.Plan, begun []cluster.Ejection, unhealthy bool, why string) {
	var all []netip.AddrPort
	for _, one := range begun {
		if one.Unhealthy() == unhealthy {
			all = append(all, one.Endpoint)
		}
	}
	if len(all) > 0 {
		e.record(plan, cluster.ReasonEjected, fmt.Sprintf("%s of service port %s: no new connections from node %s, "+
			"because %s", list(all), plan.Name(), e.node, why))
	}
}

func (e *ejectionEvents) remember(key portKey, ejected []netip.AddrPort, open string) {
	delete(e.ejected, key)
	delete(e.open, key)
	if len(ejected) > 0 {
		e.ejected[key] = ejected
	}
	if open != "" {
		e.open[key] = open
	}
}

func (e *ejectionEvents) record(plan *ruleset.Plan, reason, note string) {
	e.events.Record(cluster.NewEvent(plan.Service, reason, note))
}

// list returns the first endpoints of a list, for an event.
func list(all []netip.AddrPort) string {
	const limit = 5
	var names []string
	for _, a := range all[:min(len(all), limit)] {
		names = append(names, a.String())
	}
	text, what := strings.Join(names, ", "), "Endpoint "
	if len(all) > 1 {
		what = "Endpoints "
	}
	if more := len(all) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return what + text
}
