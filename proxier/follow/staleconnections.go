package follow

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	cleaning
	missing   *missingEndpoints
	localhost map[nft.Family]*localhostPorts
	endpoints prometheus.Counter
	resets    *prometheus.CounterVec

	mu    sync.Mutex
	ports map[portKey]servedPort
}

// servedPort is a service port that the kernel has.
type servedPort struct {
	plan      *ruleset.Plan
	frontends map[netip.AddrPort]struct{} // nil until they are needed
}

func newStaleConnections(
	config *Config, passes *passMetrics, localhost map[nft.Family]*localhostPorts,
) *staleConnections {
	return &staleConnections{
		cleaning: cleaning{passes: passes}, missing: newMissingEndpoints(config), localhost: localhost,
		endpoints: config.Metrics.Counter("nftproxy_endpoints_gone_total",
			"Endpoints of service ports that were gone, so that their connections were reset."),
		resets: config.Metrics.FamilyCounter("nftproxy_stale_connections_reset_total",
			"TCP and SCTP connections that were reset because their endpoint was gone."),
		ports: make(map[portKey]servedPort),
	}
}

// open connects to the connection tracking of the calling thread's network
// namespace. If that fails, it logs the error and returns false.
func (s *staleConnections) open() bool {
	conn, err := conntrack.Open()
	if err != nil {
		klog.ErrorS(err, "Stale connections will not be reset")
		return false
	}
	if err := conn.ChallengeClients(); err != nil {
		klog.ErrorS(err, "Clients of stale connections will notice the reset when they send the next packet")
	}
	s.conn, s.cleaner = conn, conn.NewCleaner(conntrack.CleanerConfig{Slow: true, Report: s.report})
	return true
}

func (s *staleConnections) report(r conntrack.Result) {
	s.passes.observe(r, s.resets)
	if r.Err != nil {
		klog.ErrorS(r.Err, "Failed to reset stale connections, retrying", "endpoints", r.Changes+r.Rechecks)
	}
}

func (s *staleConnections) run(ctx context.Context) {
	var passes sync.WaitGroup
	defer passes.Wait()
	passes.Go(func() { s.cleaning.run(ctx) })
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

// committed records the frontends and endpoints that the kernel has.
func (s *staleConnections) committed(c *table.Commit) {
	s.cleaning.committed(c)
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
	s.endpoints.Add(float64(len(removals)))
	s.cleaner.Remove(removals...)
	return next
}

// plansOf returns the plans of the service ports that had the endpoints.
func (s *staleConnections) plansOf(gone map[netip.Addr]*missing) map[portKey]*ruleset.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	plans := make(map[portKey]*ruleset.Plan)
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
func (s *staleConnections) removals(gone *missing, plans map[portKey]*ruleset.Plan) (out []conntrack.Removal) {
	if !s.missing.begin(gone, func(p portKey) bool { return plans[p] != nil }) {
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
				s.missing.done(gone, p.servicePort)
				logReset(p.servicePort, target, connections+local)
			},
		})
	}
	return out
}

// serves reports whether the kernel has a service port with a frontend.
func (s *staleConnections) serves(port portKey, frontend netip.AddrPort) bool {
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
	ports, port := s.localhost[f], tcpNodePort(plan).Port
	if ports == nil || port == 0 {
		return 0
	}
	n := ports.server.Reset(port, target)
	s.resets.WithLabelValues(f.Name()).Add(float64(n))
	return n
}

func logReset(servicePort portKey, endpoint netip.AddrPort, connections int) {
	level := klog.Level(0)
	if connections == 0 {
		level = 2
	}
	klog.V(level).InfoS("Reset connections to an endpoint that is gone",
		"servicePort", servicePort, "endpoint", endpoint, "connections", connections)
}
