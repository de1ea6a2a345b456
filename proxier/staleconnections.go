package proxier

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// staleConnections resets connections to endpoints that are gone
// (--reset-stale-connections). It deletes their entries of connection tracking.
// The next packet of a client then begins a new connection for the kernel, and
// the rules lead it to an endpoint that does not know the connection and
// answers with a reset. A challenge makes the client send this packet at once.
type staleConnections struct {
	idle
	conn     *conntrack.Conn
	cleaner  flowCleaner
	missing  *missingEndpoints
	families families
	metrics  *metrics

	mu    sync.Mutex
	ports map[planKey]servedPort
}

// servedPort is a service port that the kernel has.
type servedPort struct {
	plan      *ruleset.Plan
	frontends map[netip.AddrPort]struct{} // nil until they are needed
}

// planKey identifies a service port of a family.
type planKey struct {
	family   nft.Family
	service  cluster.ServiceName
	port     string
	protocol cluster.Protocol
}

// openStaleConnections connects to the connection tracking of the calling
// thread's network namespace. If that fails, it logs the error.
func (p *Proxier) openStaleConnections() {
	conn, err := conntrack.Open()
	if err != nil {
		klog.ErrorS(err, "Stale connections will not be reset")
		return
	}
	if err := conn.ChallengeClients(); err != nil {
		klog.ErrorS(err, "Clients of stale connections will notice the reset when they send the next packet")
	}
	cleaner := conn.NewCleaner(conntrack.CleanerConfig{
		Slow: true,
		Report: func(r conntrack.Result) {
			p.metrics.searched(p.tracker.families, r, p.metrics.staleConnectionsReset)
			if r.Err != nil {
				klog.ErrorS(r.Err, "Failed to reset stale connections, retrying", "endpoints", r.Changes+r.Rechecks)
			}
		},
	})
	p.tracker.missing = newMissingEndpoints(p.metrics)
	p.follow(&staleConnections{
		conn: conn, cleaner: cleaner, missing: p.tracker.missing, families: p.families, metrics: p.metrics,
		ports: make(map[planKey]servedPort),
	})
}

func (s *staleConnections) close() error { return s.conn.Close() }

func (s *staleConnections) run(ctx context.Context) {
	var cleaning sync.WaitGroup
	defer cleaning.Wait()
	cleaning.Go(func() { s.cleaner.Run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	var at time.Time // of the timer; zero if no endpoint is missing
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.missing.wake:
			if soon := time.Now().Add(missingDelay); at.IsZero() || soon.Before(at) {
				at = soon
			}
		case <-timer.C:
			at = s.reset(time.Now())
		}
		if timer.Stop(); !at.IsZero() {
			timer.Reset(max(time.Until(at), missingPeriod))
		}
	}
}

// update records the frontends and endpoints that the kernel has.
func (s *staleConnections) update(c *table.Commit) {
	if c.NodePortAddrsChanged {
		s.cleaner.SetNodeAddrs(c.Family, c.NodePortAddrs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, change := range c.Changes {
		if p := change.Before; p != nil {
			delete(s.ports, keyOf(c.Family, p))
		}
		if p := change.After; p != nil && p.Port.Protocol != cluster.UDP {
			s.ports[keyOf(c.Family, p)] = servedPort{plan: p}
		}
	}
}

func keyOf(f nft.Family, p *ruleset.Plan) planKey {
	return planKey{f, p.Service.Name, p.Port.Name, p.Port.Protocol}
}

// reset resets the connections to endpoints that are gone. It returns the time
// of the next call, zero if there is none.
func (s *staleConnections) reset(now time.Time) (next time.Time) {
	gone, next := s.missing.take(now)
	plans := s.plansOf(gone)
	for _, plan := range plans { // their endpoints wait until no rule leads to them
		for _, targets := range [][]ruleset.Target{plan.Cluster, plan.Local} {
			for _, t := range targets {
				delete(gone, t.Addr)
			}
		}
	}
	var removals []conntrack.Removal
	for _, found := range gone {
		removals = append(removals, s.removals(found, plans)...)
	}
	s.metrics.endpointsGone.Add(float64(len(removals)))
	s.cleaner.Remove(removals...)
	return next
}

// plansOf returns the plans of the service ports that had the endpoints.
func (s *staleConnections) plansOf(gone map[netip.Addr]*missing) map[planKey]*ruleset.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	plans := make(map[planKey]*ruleset.Plan)
	for _, found := range gone {
		for _, p := range found.ports {
			if served, ok := s.ports[p.servicePort]; ok {
				plans[p.servicePort] = served.plan
			}
		}
	}
	return plans
}

// removals returns the removals of endpoints with one address. It resets
// connections of NodePorts on localhost at once.
func (s *staleConnections) removals(gone *missing, plans map[planKey]*ruleset.Plan) (out []conntrack.Removal) {
	gone.ports = slices.DeleteFunc(gone.ports, func(p missingPort) bool { return plans[p.servicePort] == nil })
	if !s.missing.begin(gone) {
		return nil
	}
	for _, p := range gone.ports {
		plan := plans[p.servicePort]
		target := netip.AddrPortFrom(gone.addr, ruleset.TargetPort(cluster.EndpointPort{Port: p.number}, plan.Port))
		local := s.resetLocal(p.servicePort.family, plan, target)
		out = append(out, conntrack.Removal{
			Protocol: uint8(plan.Port.Protocol), Endpoint: target,
			Serves: func(frontend netip.AddrPort) bool {
				return !gone.forgotten.Load() && s.serves(p.servicePort, frontend)
			},
			Done: func(connections int) {
				s.missing.done(gone)
				logReset(p.servicePort, target, connections+local)
			},
		})
	}
	return out
}

// serves reports whether the kernel has a service port with a frontend.
func (s *staleConnections) serves(port planKey, frontend netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.ports[port]
	if ok && p.frontends == nil {
		p.frontends = make(map[netip.AddrPort]struct{}, len(p.plan.Frontends))
		for _, f := range p.plan.Frontends {
			p.frontends[destination(port.family, f.Frontend)] = struct{}{}
		}
		s.ports[port] = p
	}
	_, ok = p.frontends[frontend]
	return ok
}

// resetLocal resets connections from a NodePort on localhost, and returns their
// number.
func (s *staleConnections) resetLocal(f nft.Family, plan *ruleset.Plan, target netip.AddrPort) int {
	family, port := s.families.of(f), tcpNodePort(plan).Port
	if family == nil || family.localhost == nil || port == 0 {
		return 0
	}
	n := family.localhost.server.Reset(port, target)
	s.metrics.staleConnectionsReset.WithLabelValues(f.Name()).Add(float64(n))
	return n
}

func logReset(servicePort planKey, endpoint netip.AddrPort, connections int) {
	level := klog.Level(0)
	if connections == 0 {
		level = 2
	}
	klog.V(level).InfoS("Reset connections to an endpoint that is gone",
		"servicePort", servicePort.service.WithPort(servicePort.port), "endpoint", endpoint, "connections", connections)
}
