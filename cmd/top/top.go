// Package top is the table of `nftproxy top`: the connections to service ports
// and to their endpoints at a time. The command and the plugin of kubectl print
// it. The package sorts and prints, and performs no other I/O.
package top

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Snapshot is the connections to the service ports of a node.
type Snapshot struct {
	Time   time.Time `json:"time"`
	Sorted string    `json:"sortedBy"` // one of Keys
	// Seconds is the time in which New and Replies were counted.
	Seconds float64 `json:"seconds"`
	// Total is of all service ports that the question selects.
	Total Counts `json:"total"`
	// Selected is the number of these service ports, of which ServicePorts are
	// the first ones.
	Selected     int           `json:"selected"`
	ServicePorts []ServicePort `json:"servicePorts"`
	// Others is the number of connections that were translated, but belong to
	// no Service that the proxy has. LeftOut of them were not looked at,
	// because there are too many frontends and endpoints.
	Others  int `json:"otherConnections"`
	LeftOut int `json:"leftOut,omitempty"`
	// RefusalsUnknown is the reason why refused connections are not counted.
	RefusalsUnknown string `json:"refusalsUnknown,omitempty"`
}

// ServicePort is the connections to a service port.
type ServicePort struct {
	Name     string `json:"servicePort"` // namespace/name:port
	Protocol string `json:"protocol"`
	Node     string `json:"node,omitempty"` // in a table of several nodes
	Counts
	// Endpoints are empty unless the question is about them.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Endpoint is the connections to an endpoint of a service port.
type Endpoint struct {
	Address netip.AddrPort `json:"address"`
	Counts
	// Unused is why new connections do not reach the endpoint, "" if they do or
	// if that is not known: gone if no EndpointSlice of the Service has it.
	// The question must name the Service.
	Unused string `json:"unused,omitempty"`
}

// Counts are numbers of connections.
type Counts struct {
	// Connections are all: those that are Unanswered, and of the others those
	// whose handshake has not ended (Opening), those that a side has ended
	// (Closing), and the rest (Open).
	Connections int     `json:"connections"`
	Open        int     `json:"open"`
	Opening     int     `json:"opening"`
	Closing     int     `json:"closing"`
	Unanswered  int     `json:"unanswered"`
	New         float64 `json:"newPerSecond"`
	Replies     float64 `json:"repliesPerSecond"` // connections that got their first answer
	// Refused are TCP connections that endpoints refused. Connection tracking
	// keeps no entry of them.
	Refused float64 `json:"refusedPerSecond"`
	// Changed is the time of the last change that the history has.
	Changed time.Time `json:"lastChange,omitzero"`
	// Ejected is the number of endpoints that are ejected: 0 or 1 for an
	// endpoint.
	Ejected int `json:"ejected,omitempty"`
}

// Add adds numbers, and takes the later time.
func (c *Counts) Add(o Counts) {
	c.Connections += o.Connections
	c.Open += o.Open
	c.Opening += o.Opening
	c.Closing += o.Closing
	c.New += o.New
	c.Replies += o.Replies
	c.Refused += o.Refused
	c.Unanswered += o.Unanswered
	c.Ejected += o.Ejected
	c.Touch(o.Changed)
}

// Touch makes a time the one of the last change if it is later.
func (c *Counts) Touch(at time.Time) {
	if at.After(c.Changed) {
		c.Changed = at
	}
}

// Keys are the keys by which service ports and endpoints can be sorted. Sort
// puts large numbers and late changes first.
func Keys() []string {
	return []string{"connections", "open", "unanswered", "new", "replies", "refused", "changed", "ejected", "name"}
}

// compare compares numbers by a key, 0 if the key is the name.
func (c *Counts) compare(o *Counts, key string) int {
	switch key {
	case "connections":
		return cmp.Compare(o.Connections, c.Connections)
	case "open":
		return cmp.Compare(o.Open, c.Open)
	case "new":
		return cmp.Compare(o.New, c.New)
	case "replies":
		return cmp.Compare(o.Replies, c.Replies)
	case "refused":
		return cmp.Compare(o.Refused, c.Refused)
	case "unanswered":
		return cmp.Compare(o.Unanswered, c.Unanswered)
	case "changed":
		return o.Changed.Compare(c.Changed)
	case "ejected":
		return cmp.Compare(o.Ejected, c.Ejected)
	}
	return 0
}

// Sort sorts service ports by a key, equal ones by their names.
func Sort(ports []ServicePort, key string) {
	slices.SortFunc(ports, func(a, b ServicePort) int {
		return cmp.Or(a.compare(&b.Counts, key), strings.Compare(a.Name, b.Name), strings.Compare(a.Node, b.Node))
	})
}

// SortEndpoints sorts endpoints by a key, equal ones by their addresses.
func SortEndpoints(endpoints []Endpoint, key string) {
	slices.SortFunc(endpoints, func(a, b Endpoint) int {
		return cmp.Or(a.compare(&b.Counts, key), a.Address.Compare(b.Address))
	})
}

// Merge returns one snapshot of several nodes, which must not be used any more.
func Merge(nodes map[string]*Snapshot) *Snapshot {
	m, names := &Snapshot{}, make(map[string]bool)
	for node, s := range nodes {
		if s.Time.After(m.Time) {
			m.Time = s.Time
		}
		m.Sorted = s.Sorted
		m.Total.Add(s.Total)
		m.Others += s.Others
		m.RefusalsUnknown = cmp.Or(m.RefusalsUnknown, s.RefusalsUnknown)
		for _, p := range s.ServicePorts {
			p.Node = node
			names[p.Name] = true
			m.ServicePorts = append(m.ServicePorts, p)
		}
	}
	m.Selected = len(names)
	Sort(m.ServicePorts, m.Sorted)
	return m
}

// Summary returns the total numbers.
func (s *Snapshot) Summary() string {
	text := fmt.Sprintf("service ports: %d, connections: %d, new/s: %.1f, replies/s: %.1f, unanswered: %d",
		s.Selected, s.Total.Connections, s.Total.New, s.Total.Replies, s.Total.Unanswered)
	if s.Total.Refused > 0 {
		text += fmt.Sprintf(", refused/s: %.1f", s.Total.Refused)
	}
	if s.Total.Ejected > 0 {
		text += fmt.Sprintf(", ejected: %d", s.Total.Ejected)
	}
	if s.Others > 0 {
		text += fmt.Sprintf(", others: %d", s.Others)
	}
	return text
}
