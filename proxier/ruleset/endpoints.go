package ruleset

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// candidate is an endpoint that serves a service port.
type candidate struct {
	Target
	*cluster.Endpoint
}

// candidates appends to found the endpoints of a family that serve a service
// port, sorted by address and port. Of several endpoints with the same address
// and port it takes one of the highest rank, with the highest of their weights.
func candidates(
	found []candidate, endpoints []*cluster.Endpoint, f nft.Family, port cluster.ServicePort, node *cluster.Node,
) []candidate {
	var ports []cluster.EndpointPort // of the endpoint before
	var n uint16
	var ok bool
	for _, e := range endpoints {
		if !f.Of(e.Addr) || node.IsServiceAddr(e.Addr) {
			continue
		}
		// Endpoints of one slice share their ports, of which there can be
		// hundreds.
		if len(e.Ports) == 0 || len(ports) != len(e.Ports) || &ports[0] != &e.Ports[0] {
			ports = e.Ports
			n, ok = endpointPort(e, port)
		}
		if ok {
			here := e.Node == "" || e.Node == node.Name
			found = append(found, candidate{Target{Addr: e.Addr, Port: n, Here: here, Weight: e.Weight}, e})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(a.AddrPort().Compare(b.AddrPort()), b.Rank()-a.Rank())
	})
	same := func(a, b candidate) bool { return a.AddrPort() == b.AddrPort() }
	for i := len(found) - 1; i > 0; i-- {
		if before := &found[i-1]; same(*before, found[i]) {
			before.Target.Weight = max(before.Target.Weight, found[i].Target.Weight)
		}
	}
	return slices.CompactFunc(found, same)
}

// endpointPort returns the port on which an endpoint serves a service port. ok
// reports whether there is one.
func endpointPort(e *cluster.Endpoint, port cluster.ServicePort) (n uint16, ok bool) {
	want := cluster.EndpointPort{Name: port.Name, Protocol: port.Protocol}
	i, ok := slices.BinarySearchFunc(e.Ports, want, cluster.EndpointPort.Compare)
	if !ok {
		return 0, false
	}
	return TargetPort(e.Ports[i], port), true
}

// TargetPort returns the number of the port on which an endpoint serves a
// service port.
func TargetPort(at cluster.EndpointPort, port cluster.ServicePort) uint16 {
	return cmp.Or(at.Port, port.Port) // 0 stands for all ports
}

// usableForCluster returns the endpoints for traffic with policy Cluster: the
// ready ones that hints select, or, if none is ready, those that are serving
// and terminating (KEP-1669).
func usableForCluster(all []candidate, node *cluster.Node) []Target {
	return targets(byHints(highestRank(all), node))
}

// usableForLocal returns the endpoints for traffic with policy Local. Hints do
// not apply, and the fallback to terminating endpoints considers this node
// only.
func usableForLocal(all []candidate, node *cluster.Node) []Target {
	local := only(all, func(c candidate) bool { return c.Node == node.Name })
	return targets(highestRank(local))
}

// highestRank returns the ready endpoints, or, if none is ready, the serving
// and terminating ones.
func highestRank(all []candidate) []candidate {
	highest := 0
	for _, c := range all {
		highest = max(highest, c.Rank())
	}
	return only(all, func(c candidate) bool { return highest > 0 && c.Rank() == highest })
}

// only returns the endpoints for which keep returns true.
func only(all []candidate, keep func(candidate) bool) (found []candidate) {
	if !slices.ContainsFunc(all, func(c candidate) bool { return !keep(c) }) {
		return all
	}
	for _, c := range all {
		if keep(c) {
			found = append(found, c)
		}
	}
	return found
}

// byHints returns the ready endpoints with a hint for this node, or else for
// its zone. It returns all of them unless every one has such a hint and at
// least one hint names this node or zone (KEP-2433, KEP-3015).
func byHints(ready []candidate, node *cluster.Node) []candidate {
	if len(ready) == 0 || !ready[0].Ready {
		return ready
	}
	if found, ok := hinted(ready, node.Name, func(h *cluster.Hints) []string { return h.Nodes }); ok {
		return found
	}
	if found, ok := hinted(ready, node.Zone, func(h *cluster.Hints) []string { return h.Zones }); ok {
		return found
	}
	return ready
}

// hinted returns the endpoints whose hints contain a name. ok is false if an
// endpoint has no hints, or no hint contains the name.
func hinted(all []candidate, name string, hints func(*cluster.Hints) []string) (found []candidate, ok bool) {
	if name == "" {
		return nil, false
	}
	for _, c := range all {
		if c.Hints == nil || len(hints(c.Hints)) == 0 {
			return nil, false
		}
		if slices.Contains(hints(c.Hints), name) {
			found = append(found, c)
		}
	}
	return found, len(found) > 0
}

// servingOf returns the endpoints that answer, including those that get no new
// traffic.
func servingOf(all []candidate) []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(all))
	for _, c := range all {
		if c.Ready || c.Serving {
			out = append(out, c.AddrPort())
		}
	}
	return out
}

func targets(all []candidate) []Target {
	if len(all) == 0 {
		return nil
	}
	out := make([]Target, len(all))
	for i, c := range all {
		out[i] = c.Target
	}
	return out
}

// arrange orders targets. Targets that are in before keep their index where
// possible, so that a change of one target changes few rows: a new target takes
// the index of a removed one, and the last targets fill the remaining gaps.
func arrange(before, now []Target) []Target {
	same := func(a, b Target) bool { return a.Addr == b.Addr && a.Port == b.Port }
	if len(before) == 0 || slices.EqualFunc(before, now, same) {
		return now
	}
	wanted := make(map[netip.AddrPort]Target, len(now))
	for _, t := range now {
		wanted[t.AddrPort()] = t
	}
	out := make([]Target, len(now))
	for i, t := range before {
		if w, ok := wanted[t.AddrPort()]; ok && i < len(out) {
			out[i] = w
			delete(wanted, t.AddrPort())
		}
	}
	at := 0
	for _, t := range now {
		if _, left := wanted[t.AddrPort()]; !left {
			continue
		}
		for out[at].Addr.IsValid() {
			at++
		}
		out[at] = t
	}
	return out
}
