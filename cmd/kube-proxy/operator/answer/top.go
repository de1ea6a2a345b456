package answer

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/cmd/top"
	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Top asks for the connections to service ports. Without connections, a service
// port is listed only if the query names its Service, or if an endpoint is
// ejected. The answer is of the next walk.
var Top = socket.Question[TopQuery, top.Snapshot]{
	Path: "/v1/top",
	Format: func(q TopQuery) url.Values {
		return url.Values{
			"namespace": {q.Namespace}, "name": {q.Name}, "sort": {q.Sort}, "limit": {strconv.Itoa(q.Limit)},
			"endpoints": {strconv.FormatBool(q.Endpoints)},
		}
	},
	Parse: func(v url.Values) (q TopQuery, err error) {
		q.ServiceName = cluster.ServiceName{Namespace: v.Get("namespace"), Name: v.Get("name")}
		q.Sort = v.Get("sort")
		var err1, err2 error
		q.Limit, err1 = strconv.Atoi(v.Get("limit"))
		q.Endpoints, err2 = strconv.ParseBool(v.Get("endpoints"))
		return q, errors.Join(err1, err2)
	},
}

// TopQuery selects service ports. An empty name or namespace selects all.
type TopQuery struct {
	cluster.ServiceName
	Sort string // one of top.Keys
	// Limit is the number of service ports in the answer.
	Limit int
	// Endpoints adds the endpoints.
	Endpoints bool
}

// top answers the question.
func (a *Answers) top(ctx context.Context, q TopQuery, yield func(*top.Snapshot) error) error {
	var named []*table.ServiceView
	if q.Name != "" {
		err := a.services(ctx, q.ServiceName, func(v *table.ServiceView) error {
			named = append(named, v)
			return nil
		})
		if err != nil {
			return err
		}
	}
	m, err := a.meter.next(ctx, a.measure)
	if err != nil {
		return err
	}
	return yield(m.answer(q, named))
}

// answer returns the service ports that a query selects, and those of the named
// Services.
func (m *measure) answer(q TopQuery, named []*table.ServiceView) *top.Snapshot {
	ports := make(map[cluster.PortName]*top.ServicePort)
	for name, p := range m.ports {
		if (q.Namespace == "" || q.Namespace == name.Namespace) && (q.Name == "" || q.Name == name.Name) {
			selected := *p
			ports[name] = &selected
		}
	}
	for _, v := range named {
		for i := range v.Ports {
			m.addUses(ports, v.ServiceName, &v.Ports[i])
		}
	}
	s := m.Snapshot
	s.Sorted = q.Sort
	s.Selected, s.ServicePorts = len(ports), make([]top.ServicePort, 0, len(ports))
	for _, p := range ports {
		s.Total.Add(p.Counts)
		s.ServicePorts = append(s.ServicePorts, *p)
	}
	top.Sort(s.ServicePorts, q.Sort)
	s.ServicePorts = s.ServicePorts[:min(len(s.ServicePorts), max(q.Limit, 0))]
	for i := range s.ServicePorts {
		p := &s.ServicePorts[i]
		if p.Endpoints = slices.Clone(p.Endpoints); !q.Endpoints {
			p.Endpoints = nil
		}
		top.SortEndpoints(p.Endpoints, q.Sort)
	}
	return &s
}

// addUses adds the endpoints of a service port that have no connections, and
// why endpoints are not used.
func (m *measure) addUses(
	ports map[cluster.PortName]*top.ServicePort, service cluster.ServiceName, view *table.PortView,
) {
	name := cluster.PortName{ServiceName: service, Port: view.Name}
	p := ports[name]
	if p == nil {
		p = m.newPort(name, view.Protocol)
		ports[name] = p
	}
	counts := make(map[netip.AddrPort]top.Endpoint)
	for _, e := range p.Endpoints {
		e.Unused = "gone"
		counts[e.Address] = e
	}
	for i := range view.Endpoints {
		e := &view.Endpoints[i]
		at := netip.AddrPortFrom(e.Addr, e.Port)
		if e.Port == 0 || e.For(cluster.PolicyCluster) == ruleset.UnusedDuplicate {
			continue
		}
		known, ok := counts[at]
		if !ok {
			known = top.Endpoint{Address: at, Counts: top.Counts{Changed: m.changes[place{name, at}]}}
		}
		if known.Unused = ""; e.For(cluster.PolicyCluster) != "" && e.For(cluster.PolicyLocal) != "" {
			known.Unused = e.Why(cluster.PolicyCluster)
		}
		counts[at] = known
	}
	p.Endpoints = slices.Collect(maps.Values(counts))
}

// newPort returns a service port without connections.
func (m *measure) newPort(name cluster.PortName, protocol cluster.Protocol) *top.ServicePort {
	p := &top.ServicePort{Name: name.String(), Protocol: protocol.String()}
	p.Changed = m.changes[place{PortName: name}]
	return p
}

// measure returns the connections by service port and endpoint.
func (a *Answers) measure(ctx context.Context, n *count) (*measure, error) {
	for pair := range n.refused {
		if n.Pairs[pair] == nil {
			n.Pairs[pair] = new(conntrack.PairCount) // the kernel has no entry
		}
	}
	owners, ejected, err := a.owners(ctx, n.Count)
	if err != nil {
		return nil, err
	}
	m := &measure{ports: make(map[cluster.PortName]*top.ServicePort), changes: a.changes()}
	m.Time, m.Seconds, m.Others, m.LeftOut = n.Time, n.Since.Seconds(), n.LeftOut, n.LeftOut
	if n.unknown != nil {
		m.RefusalsUnknown = n.unknown.Error()
	}
	counts := make(map[place]*top.Counts)
	at := func(p place, protocol cluster.Protocol) *top.Counts {
		if m.ports[p.PortName] == nil {
			m.ports[p.PortName] = m.newPort(p.PortName, protocol)
		}
		if counts[p] == nil {
			counts[p] = &top.Counts{Changed: m.changes[p]}
		}
		return counts[p]
	}
	for pair, p := range n.Pairs {
		protocol := cluster.Protocol(pair.Protocol)
		owner, ok := owners[frontend{pair.Frontend, protocol}]
		if !ok {
			m.Others += p.Connections
			continue
		}
		at(place{owner, pair.Endpoint}, protocol).Add(top.Counts{
			Connections: p.Connections, Opening: p.Opening, Closing: p.Closing, Unanswered: p.Unanswered,
			Open: p.Connections - p.Opening - p.Closing - p.Unanswered,
			New:  float64(p.New) / m.Seconds, Replies: float64(p.Replies) / m.Seconds,
			Refused: float64(n.refused[pair]) / m.Seconds,
		})
	}
	for name, endpoints := range ejected {
		for _, e := range endpoints {
			at(place{name, e}, cluster.TCP).Ejected = 1
		}
	}
	for p, n := range counts {
		port := m.ports[p.PortName]
		port.Endpoints = append(port.Endpoints, top.Endpoint{Address: p.endpoint, Counts: *n})
		port.Add(*n)
	}
	return m, nil
}

// frontend is an address to which clients connect.
type frontend struct {
	at       netip.AddrPort
	protocol cluster.Protocol
}

// ejections are the ejected endpoints of service ports.
type ejections = map[cluster.PortName][]netip.AddrPort

// frontendsPerQuery limits the frontends that one query looks up, because
// changes wait for it: about a millisecond.
const frontendsPerQuery = 4096

// owners asks the tables for the service ports of frontends, and for the
// endpoints that are ejected.
func (a *Answers) owners(ctx context.Context, n *conntrack.Count) (
	owners map[frontend]cluster.PortName, ejected ejections, err error,
) {
	asked, byFamily := make(map[frontend]bool), make(map[nft.Family][]frontend)
	for p := range n.Pairs {
		f := frontend{p.Frontend, cluster.Protocol(p.Protocol)}
		if !asked[f] {
			asked[f] = true
			family := nft.FamilyOf(f.at.Addr())
			byFamily[family] = append(byFamily[family], f)
		}
	}
	owners, ejected = make(map[frontend]cluster.PortName), make(ejections)
	for _, family := range a.families() {
		for some := range slices.Chunk(byFamily[family], frontendsPerQuery) {
			found, err := ask(ctx, a.config.Proxy, family, func(t *table.Table) (map[frontend]cluster.PortName, error) {
				return ownersIn(t, some), nil
			})
			if err != nil {
				return nil, nil, err
			}
			maps.Copy(owners, found)
		}
		avoided, err := ask(ctx, a.config.Proxy, family, func(t *table.Table) (ejections, error) {
			return t.Ejected(), nil
		})
		if err != nil {
			return nil, nil, err
		}
		for name, endpoints := range avoided {
			ejected[name] = append(ejected[name], endpoints...)
		}
	}
	return owners, ejected, nil
}

// ownersIn returns the service ports of frontends that a table has.
func ownersIn(t *table.Table, frontends []frontend) map[frontend]cluster.PortName {
	found := make(map[frontend]cluster.PortName, len(frontends))
	for _, f := range frontends {
		if name, ok := t.PortAt(f.at, f.protocol); ok {
			found[f] = name
		}
	}
	return found
}

// changes returns when service ports and endpoints changed, according to the
// history.
func (a *Answers) changes() map[place]time.Time {
	last := make(map[place]time.Time)
	for _, e := range a.config.Proxy.History(history.Query{}) {
		if e.Service.Name == "" || e.Kind != history.Change {
			continue
		}
		at := e.Time
		if e.Last.After(at) {
			at = e.Last
		}
		name := cluster.PortName{ServiceName: e.Service, Port: e.Port}
		for _, endpoint := range slices.Concat(
			[]netip.AddrPort{{}}, e.Endpoints.Added, e.Endpoints.Removed, e.Ejected.Added, e.Ejected.Removed,
		) {
			if p := (place{name, endpoint}); at.After(last[p]) {
				last[p] = at
			}
		}
	}
	return last
}
