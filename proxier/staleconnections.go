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
	cleaner  removalCleaner
	tracker  *tracker
	families []*family
	metrics  *metrics
	wake     chan struct{} // capacity 1; receives a value after an endpoint left

	mu    sync.Mutex // locked after tracker.mu
	plans map[nft.Family]map[planKey]*ruleset.Plan
}

// removalCleaner is the part of conntrack.Cleaner that staleConnections uses.
type removalCleaner interface {
	Run(context.Context) error
	Remove(...conntrack.Removal)
	Restore(...netip.Addr)
	SetNodeAddrs(nft.Family, []netip.Addr)
}

// planKey identifies a service port.
type planKey struct {
	service  cluster.ServiceName
	port     string
	protocol cluster.Protocol
}

// openStaleConnections connects to the connection tracking of the calling
// thread's network namespace. If that fails, it logs the error and returns nil.
func openStaleConnections(p *Proxier) *staleConnections {
	s := &staleConnections{
		tracker: p.tracker, families: p.families, metrics: p.metrics,
		wake: make(chan struct{}, 1), plans: make(map[nft.Family]map[planKey]*ruleset.Plan),
	}
	conn, err := conntrack.Open()
	if err != nil {
		klog.ErrorS(err, "Stale connections will not be reset")
		return nil
	}
	if err := conn.ChallengeClients(); err != nil {
		klog.ErrorS(err, "Clients of stale connections will notice the reset when they send the next packet")
	}
	cleaner, err := conntrack.NewCleaner(conntrack.CleanerConfig{
		Conn: conn, Slow: true,
		Report: func(r conntrack.Result) {
			p.metrics.connectionsReset(p.tracker.families, r)
			if r.Err != nil {
				klog.ErrorS(r.Err, "Failed to reset stale connections, retrying", "endpoints", r.Changes+r.Rechecks)
			}
		},
	})
	if err != nil {
		klog.ErrorS(err, "Stale connections will not be reset")
		conn.Close()
		return nil
	}
	s.conn, s.cleaner = conn, cleaner
	p.tracker.watchMissing(func(addr netip.Addr) { s.cleaner.Restore(addr) }, s.wake)
	return s
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
		case <-s.wake:
			if soon := time.Now().Add(missingDelay); at.IsZero() || soon.Before(at) {
				at = soon
			}
		case <-timer.C:
			at = s.tracker.takeMissing(time.Now(), s.remove)
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
	if c.Whole || s.plans[c.Family] == nil {
		s.plans[c.Family] = make(map[planKey]*ruleset.Plan)
	}
	plans := s.plans[c.Family]
	for _, change := range c.Changes {
		if p := change.Before; p != nil {
			delete(plans, keyOf(p))
		}
		if p := change.After; p != nil && p.Port.Protocol != cluster.UDP {
			plans[keyOf(p)] = p
		}
	}
}

func keyOf(p *ruleset.Plan) planKey { return planKey{p.Service.Name, p.Port.Name, p.Port.Protocol} }

// remove resets the connections to the endpoints with one address. It returns
// false if the kernel still has rules that lead to them.
func (s *staleConnections) remove(endpoints []missingEndpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var removals []conntrack.Removal
	for _, missing := range endpoints {
		addr := missing.endpoint.Addr
		family := nft.FamilyOf(addr)
		for _, port := range missing.endpoint.Ports {
			plan := s.plans[family][planKey{missing.service, port.Name, port.Protocol}]
			if plan == nil {
				continue
			}
			target := netip.AddrPortFrom(addr, ruleset.TargetPort(port, plan.Port))
			if plan.Uses(target) {
				return false
			}
			removals = append(removals, s.removal(family, plan, target))
		}
	}
	s.metrics.endpointsGone.Add(float64(len(removals)))
	s.cleaner.Remove(removals...)
	return true
}

// removal returns the removal of an endpoint of a service port. It resets
// connections of NodePorts on localhost at once.
func (s *staleConnections) removal(f nft.Family, plan *ruleset.Plan, target netip.AddrPort) conntrack.Removal {
	local := s.resetLocal(f, plan, target)
	out := conntrack.Removal{
		Protocol: uint8(plan.Port.Protocol), Endpoint: target,
		Done: func(connections int) { logReset(plan.Name(), target, connections+local) },
	}
	for _, frontend := range plan.Frontends {
		out.Frontends = append(out.Frontends, destination(f, frontend.Frontend))
	}
	return out
}

// resetLocal resets connections from a NodePort on localhost, and returns their
// number.
func (s *staleConnections) resetLocal(f nft.Family, plan *ruleset.Plan, target netip.AddrPort) int {
	i := slices.IndexFunc(s.families, func(have *family) bool { return have.table.Family() == f })
	port := tcpNodePort(plan)
	if i < 0 || s.families[i].localhost == nil || port == 0 {
		return 0
	}
	n := s.families[i].localhost.server.Reset(port, target)
	s.metrics.staleConnectionsReset.WithLabelValues(f.Name()).Add(float64(n))
	return n
}

func logReset(servicePort string, endpoint netip.AddrPort, connections int) {
	level := klog.Level(0)
	if connections == 0 {
		level = 2
	}
	klog.V(level).InfoS("Reset connections to an endpoint that is gone",
		"servicePort", servicePort, "endpoint", endpoint, "connections", connections)
}
