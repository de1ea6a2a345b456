package table_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// eject sets the ejected endpoints of a service port.
func (e *engine) eject(of string, endpoints ...netip.AddrPort) {
	e.setEjections(of, endpoints, endpoints, nil)
}

// prolong is like eject, with ejections that began before.
func (e *engine) prolong(of string, endpoints ...netip.AddrPort) {
	e.setEjections(of, endpoints, nil, nil)
}

// try puts the first one of these endpoints on trial, whose ejections began
// before.
func (e *engine) try(of string, endpoints ...netip.AddrPort) {
	e.setEjections(of, endpoints, nil, endpoints[:1])
}

// unhealthy sets the endpoints of a service port that fail health checks, as
// endpoint or endpoint@second, the time since when.
func (e *engine) unhealthy(of string, endpoints ...string) {
	name, port, _ := strings.Cut(of, ":")
	var all []cluster.Ejection
	for _, text := range endpoints {
		at, second, _ := strings.Cut(text, "@")
		since, _ := strconv.Atoi(second)
		all = append(all, cluster.Ejection{
			Endpoint: netip.MustParseAddrPort(at), Since: time.Unix(int64(since), 0), Checks: 3, Reply: "RST",
		})
	}
	for _, t := range e.tables {
		t.SetUnhealthy(cluster.PortName{ServiceName: parseName(name), Port: port}, all)
	}
}

func (e *engine) setEjections(of string, endpoints, begun, onTrial []netip.AddrPort) {
	name, port, _ := strings.Cut(of, ":")
	var all []cluster.Ejection
	for _, at := range endpoints {
		all = append(all, cluster.Ejection{
			Endpoint: at, Attempts: 2, Clients: 1, Probes: 2, OnTrial: slices.Contains(onTrial, at),
		})
	}
	for _, t := range e.tables {
		t.SetEjections(cluster.PortName{ServiceName: parseName(name), Port: port}, all, begun)
	}
}

// ejectable returns the service port at a destination, the endpoints that it
// could use, and those whose ejections are known.
func (e *engine) ejectable(at netip.AddrPort) string {
	var all []string
	for _, t := range e.tables {
		if name, ok := t.Ejectable(at); ok {
			u, _ := t.Usable(name)
			forCluster, forLocal := u.Plan.Usable()
			all = append(all, fmt.Sprint(name.String(), forCluster, forLocal, u.Ejected))
		}
	}
	return lines(all...)
}
