package flows

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/conntrack"
)

// Report is the connections of some service ports.
type Report struct {
	Groups []*Group `json:"groups"`
	// Read is the number of connections that the kernel sent, and Tracked the
	// number of all tracked connections of this node.
	Read    int `json:"read"`
	Tracked int `json:"tracked"`
	// Total is the number of connections whose destination was translated, by
	// the proxy or another program. It is 0 unless the report is of Top.
	Total int `json:"total,omitempty"`
	// Notes are remarks for people.
	Notes []string `json:"notes,omitempty"`

	top bool // of Top
}

// Group is the connections to the frontends of one service port.
type Group struct {
	// ServicePort is a namespace/name:port, "" if it is not known.
	ServicePort string     `json:"servicePort,omitempty"`
	Protocol    string     `json:"protocol"`
	Frontends   []Frontend `json:"frontends"`
	Counts
	// Endpoints are those with connections and those in use.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	// Skew is the largest number of connections of an endpoint in use divided
	// by the mean of its family, 0 if there are no connections.
	Skew float64 `json:"skew,omitempty"`
	// Untranslated counts connections that have no endpoint. They are not among
	// the others.
	Untranslated int `json:"untranslated,omitempty"`

	endpoints map[netip.AddrPort]*Counts // addEndpoints lists them in Endpoints
}

// Frontend is an address of a service port. A NodePort has the unspecified
// address.
type Frontend struct {
	Address     netip.AddrPort `json:"address"`
	Connections int            `json:"connections"`
}

// Endpoint is an endpoint of a service port.
type Endpoint struct {
	Address netip.AddrPort `json:"address"`
	Counts
	// Unused reports whether new connections do not reach the endpoint.
	Unused bool `json:"unused,omitempty"`
	// Gone reports whether no EndpointSlice of the Service has the endpoint.
	Gone bool `json:"gone,omitempty"`
}

// Counts are numbers of connections.
type Counts struct {
	Connections int `json:"connections"`
	// States are the numbers by state. See conntrack.Connection for the names.
	States map[string]int `json:"states,omitempty"`
}

func (c *Counts) add(state string) {
	if c.States == nil {
		c.States = make(map[string]int)
	}
	c.Connections++
	c.States[state]++
}

func newGroup(servicePort, protocol string) *Group {
	return &Group{ServicePort: servicePort, Protocol: protocol, endpoints: make(map[netip.AddrPort]*Counts)}
}

// count counts a connection to the last frontend.
func (g *Group) count(c conntrack.Connection) {
	if c.Endpoint == c.Frontend {
		g.Untranslated++
		return
	}
	g.add(c.State)
	g.Frontends[len(g.Frontends)-1].Connections++
	countsOf(g.endpoints, c.Endpoint).add(c.State)
}

// countsOf returns the numbers of a key.
func countsOf[K comparable](all map[K]*Counts, key K) *Counts {
	if all[key] == nil {
		all[key] = new(Counts)
	}
	return all[key]
}

// addEndpoints lists the endpoints. used are those in use, and existing those
// of the Service, nil if they are not known.
func (g *Group) addEndpoints(used, existing map[netip.AddrPort]bool) {
	for endpoint := range used {
		countsOf(g.endpoints, endpoint)
	}
	for _, endpoint := range slices.SortedFunc(maps.Keys(g.endpoints), netip.AddrPort.Compare) {
		unused := used != nil && !used[endpoint]
		gone := existing != nil && !existing[endpoint] && !used[endpoint]
		g.Endpoints = append(g.Endpoints, Endpoint{endpoint, *g.endpoints[endpoint], unused, gone})
	}
	slices.SortStableFunc(g.Endpoints, func(a, b Endpoint) int { return cmp.Compare(b.Connections, a.Connections) })
	g.Skew = skew(g.Endpoints)
}

// skew returns the largest number of connections of an endpoint in use divided
// by the mean of its family: clients choose the family, not the proxy. It
// returns the larger skew of the two families.
func skew(endpoints []Endpoint) float64 {
	largest := 0.0
	for _, is4 := range []bool{true, false} {
		most, sum, n := 0, 0, 0
		for _, e := range endpoints {
			if !e.Unused && e.Address.Addr().Is4() == is4 {
				most, sum, n = max(most, e.Connections), sum+e.Connections, n+1
			}
		}
		if sum > 0 {
			largest = max(largest, float64(most)*float64(n)/float64(sum))
		}
	}
	return largest
}
