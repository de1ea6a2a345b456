package proxier

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// target is where a service port sends connections: the address and port of an endpoint.
type target struct {
	netip.AddrPort
	// here says that the endpoint is on this node, or may be: nobody says where it is.
	here bool
	// id is the number by which clients with session affinity are remembered, 0 without affinity.
	id uint32
}

// candidate is an endpoint as one service port sees it.
type candidate struct {
	target
	*Endpoint
}

// candidates appends to found the endpoints of a family that serve a service port,
// by address and port. Of several with the same address and port it takes the one
// that is fittest for traffic.
func candidates(found []candidate, endpoints []*Endpoint, f nft.Family, port ServicePort, node *Node) []candidate {
	var ports []EndpointPort // of the endpoint before
	var n uint16
	var ok bool
	for _, e := range endpoints {
		if !f.Of(e.Addr) || node.isServiceAddr(e.Addr) {
			continue
		}
		// Endpoints of one slice share their ports, of which there can be hundreds.
		if len(e.Ports) == 0 || len(ports) != len(e.Ports) || &ports[0] != &e.Ports[0] {
			ports = e.Ports
			n, ok = endpointPort(e, port)
		}
		if ok {
			at := target{AddrPort: netip.AddrPortFrom(e.Addr, n), here: e.Node == "" || e.Node == node.Name}
			found = append(found, candidate{at, e})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(a.AddrPort.Compare(b.AddrPort), fitness(b.Endpoint)-fitness(a.Endpoint))
	})
	return slices.CompactFunc(found, func(a, b candidate) bool { return a.AddrPort == b.AddrPort })
}

// isServiceAddr reports whether an address is in a service CIDR. An endpoint must
// not be: what was translated to a ClusterIP would not be translated again.
func (n *Node) isServiceAddr(addr netip.Addr) bool {
	return slices.ContainsFunc(n.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// reportInvalidEndpoints records an event for each changed Service that has
// endpoints in a service CIDR, once for each set of such endpoints.
func (b *Backend) reportInvalidEndpoints() {
	for s := range b.dirty {
		var invalid []string
		for _, e := range s.endpoints {
			if b.node.isServiceAddr(e.Addr) {
				invalid = append(invalid, e.Addr.String())
			}
		}
		note := ""
		if len(invalid) > 0 {
			note = fmt.Sprintf("Endpoints of Service %s are ignored, because they are in a service CIDR: %s", s.name, summary(invalid))
		}
		if note != s.invalidEndpoints && note != "" && s.spec != nil {
			recordEvent(b.config.Events, serviceEvent(s.spec, ReasonInvalid, note))
		}
		s.invalidEndpoints = note
	}
}

// summary joins the first values of a list.
func summary(values []string) string {
	const most = 5
	if len(values) <= most {
		return strings.Join(values, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(values[:most], ", "), len(values)-most)
}

// endpointPort returns the port on which an endpoint serves a service port, if it does.
func endpointPort(e *Endpoint, port ServicePort) (n uint16, ok bool) {
	for _, p := range e.Ports {
		if p.Name == port.Name && p.Protocol == port.Protocol {
			if p.Port == 0 { // all ports: the one that was asked for
				return port.Port, true
			}
			return p.Port, true
		}
	}
	return 0, false
}

// fitness orders endpoints by whether they should get traffic.
func fitness(e *Endpoint) int {
	switch {
	case e.Ready:
		return 2
	case e.Serving && e.Terminating:
		return 1
	}
	return 0
}

// usableForCluster returns the endpoints for traffic that may go anywhere: those that are ready, narrowed by hints; if none is ready, those
// that are serving and terminating (KEP-1669).
func usableForCluster(all []candidate, node *Node) []target {
	return targets(byHints(fittest(all), node))
}

// usableForLocal returns the endpoints for traffic that must stay on this node, with a fallback of its own and no hints.
func usableForLocal(all []candidate, node *Node) []target {
	var local []candidate
	for _, c := range all {
		if c.Node == node.Name {
			local = append(local, c)
		}
	}
	return targets(fittest(local))
}

// fittest returns the ready endpoints; if there is none, the serving and terminating ones.
func fittest(all []candidate) []candidate {
	if !slices.ContainsFunc(all, func(c candidate) bool { return !c.Ready }) {
		return all
	}
	for want := 2; want > 0; want-- {
		var found []candidate
		for _, c := range all {
			if fitness(c.Endpoint) == want {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// byHints narrows ready endpoints to those meant for this node, or else for its zone, provided that every one of them has
// such a hint and one names this node or zone (KEP-2433, KEP-3015).
func byHints(ready []candidate, node *Node) []candidate {
	if len(ready) == 0 || !ready[0].Ready {
		return ready
	}
	if found, ok := hinted(ready, node.Name, func(h *Hints) []string { return h.Nodes }); ok {
		return found
	}
	if found, ok := hinted(ready, node.Zone, func(h *Hints) []string { return h.Zones }); ok {
		return found
	}
	return ready
}

// hinted returns the endpoints whose hints name us; ok is false if one has no hints or none names us.
func hinted(all []candidate, us string, hints func(*Hints) []string) (found []candidate, ok bool) {
	if us == "" {
		return nil, false
	}
	for _, c := range all {
		if c.Hints == nil || len(hints(c.Hints)) == 0 {
			return nil, false
		}
		if slices.Contains(hints(c.Hints), us) {
			found = append(found, c)
		}
	}
	return found, len(found) > 0
}

// servingOf returns the endpoints that still answer, whether or not they get new traffic.
func servingOf(all []candidate) []netip.AddrPort {
	var out []netip.AddrPort
	for _, c := range all {
		if c.Ready || c.Serving {
			out = append(out, c.AddrPort)
		}
	}
	return out
}

func targets(all []candidate) []target {
	if len(all) == 0 {
		return nil
	}
	out := make([]target, len(all))
	for i, c := range all {
		out[i] = c.target
	}
	return out
}

// arrange gives targets their indexes. Those that were there before keep their index where they can, so that a change of one target is
// a change of few rows: a new one takes the place of one that is gone, and the last ones move into the places left over.
func arrange(before, now []target) []target {
	if len(before) == 0 {
		return now
	}
	wanted := make(map[netip.AddrPort]target, len(now))
	for _, t := range now {
		wanted[t.AddrPort] = t
	}
	out := make([]target, len(now))
	for i, t := range before {
		if w, ok := wanted[t.AddrPort]; ok && i < len(out) {
			out[i] = w
			delete(wanted, t.AddrPort)
		}
	}
	at := 0
	for _, t := range now {
		if _, left := wanted[t.AddrPort]; !left {
			continue
		}
		for out[at].IsValid() {
			at++
		}
		out[at] = t
	}
	return out
}
