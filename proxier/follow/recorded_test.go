package follow

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/healthcheck"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/localhost"
)

// recorded are calls of cleaners and servers.
type recorded struct {
	udp, attempts, checks, ports []string

	mu       sync.Mutex // of the fields that other goroutines use
	removals []string
	hold     bool // whether removals are not done
	held     []conntrack.Removal
}

// cleaner is a flowCleaner, of flows or of connections.
type cleaner struct {
	r     *recorded
	flows *[]string // nil if it is of connections
}

func (c *cleaner) Update(changes ...conntrack.FrontendChange) {
	for _, change := range changes {
		state := fmt.Sprint(change.Endpoints)
		if change.Gone {
			state = "removed"
		}
		if change.Check {
			state += " check"
		}
		if p := cluster.Protocol(change.Protocol); p != cluster.UDP {
			state += " " + p.String()
		}
		*c.flows = append(*c.flows, fmt.Sprintf("%s %s", change.Frontend, state))
	}
}

func (c *cleaner) SetNodeAddrs(family nft.Family, addrs []netip.Addr) {
	if c.flows != nil {
		*c.flows = append(*c.flows, fmt.Sprintf("node addresses %s %v", family.Name(), addrs))
	}
}

// Remove records the frontends of the Services web and api that removals serve.
func (c *cleaner) Remove(all ...conntrack.Removal) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	for _, one := range all {
		if c.r.hold {
			c.r.held = append(c.r.held, one)
			continue
		}
		var served []string
		for _, frontend := range []string{"10.96.0.1:80", "10.96.0.2:80"} {
			if one.Serves(netip.MustParseAddrPort(frontend)) {
				served = append(served, frontend)
			}
		}
		c.r.removals = append(c.r.removals, fmt.Sprintf("protocol %d %s %v", one.Protocol, one.Endpoint, served))
		one.Done(0)
	}
}

func (*cleaner) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// healthServerCalls is a healthServer.
type healthServerCalls struct{ r *recorded }

func (h *healthServerCalls) record(call string) { h.r.checks = append(h.r.checks, call) }

func (h *healthServerCalls) SetService(s healthcheck.Service) {
	h.record(fmt.Sprintf("set %s/%s port %d: %d", s.Namespace, s.Name, s.Port, s.LocalEndpoints))
}
func (h *healthServerCalls) DeleteService(ns, name string) { h.record("delete " + ns + "/" + name) }
func (h *healthServerCalls) Run(context.Context) error     { return nil }
func (h *healthServerCalls) SetAddrs(addrs []netip.Addr)   { h.record(fmt.Sprint("listen on ", addrs)) }

// portServer is a localhostServer.
type portServer struct {
	localhostServer // nil
	r               *recorded
}

func (p *portServer) Set(n localhost.NodePort) {
	p.r.ports = append(p.r.ports, fmt.Sprintf("set %d %s %v %v", n.Port, n.ServicePort, n.Targets, n.Affinity))
}

func (p *portServer) Delete(port uint16) { p.r.ports = append(p.r.ports, fmt.Sprint("delete ", port)) }

func (p *portServer) Reset(port uint16, target netip.AddrPort) int {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.r.removals = append(p.r.removals, fmt.Sprint("localhost ", port, " ", target))
	return 1
}
