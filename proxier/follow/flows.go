package follow

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// staleFlows deletes flows of clients that do not lead to a serving endpoint:
// those of UDP, or attempts to connect by other protocols that have no answer.
type staleFlows struct {
	cleaning
	protocols []cluster.Protocol
	deleted   prometheus.Counter
}

// newStaleFlows returns the followers for UDP, and for TCP and SCTP. They have
// a cleaner each: endpoints of TCP change all the time, and the pauses after
// its passes must not delay those of UDP.
func newStaleFlows(config *Config, passes *passMetrics) (udp, attempts *staleFlows) {
	deleted := config.Metrics.Counter("nftproxy_stale_flows_deleted_total",
		"Flows that led to no serving endpoint and were deleted: of UDP, and attempts to connect by TCP and SCTP.")
	return &staleFlows{cleaning{passes: passes}, []cluster.Protocol{cluster.UDP}, deleted},
		&staleFlows{cleaning{passes: passes}, []cluster.Protocol{cluster.TCP, cluster.SCTP}, deleted}
}

// open connects to the connection tracking of the calling thread's network
// namespace. If that fails, it logs the error and returns false. Then clients
// that keep their source port can stay with a removed endpoint.
func (s *staleFlows) open() bool {
	conn, err := conntrack.Open()
	if err != nil {
		klog.ErrorS(err, "Stale flows will not be deleted", "protocols", s.protocols)
		return false
	}
	s.conn, s.cleaner = conn, conn.NewCleaner(conntrack.CleanerConfig{Slow: !s.follows(cluster.UDP), Report: s.report})
	return true
}

func (s *staleFlows) report(r conntrack.Result) {
	s.passes.observe(r)
	s.deleted.Add(float64(r.Deleted))
	if r.Err != nil {
		klog.ErrorS(r.Err, "Failed to delete stale flows, retrying",
			"protocols", s.protocols, "changes", r.Changes, "rechecks", r.Rechecks)
		return
	}
	klog.V(2).InfoS("Deleted stale flows", "protocols", s.protocols,
		"changes", r.Changes, "rechecks", r.Rechecks, "flows", r.Deleted, "elapsed", r.Duration)
}

func (s *staleFlows) follows(p cluster.Protocol) bool { return slices.Contains(s.protocols, p) }

// committed passes the changes of service ports to the cleaner, which decides
// whether flows may be stale.
//
// The work and the memory grow with the sum of frontends, node addresses and
// endpoints, and not with their product: a NodePort is one frontend, and all
// frontends of a service port share one slice of endpoints.
func (s *staleFlows) committed(c *table.Commit) {
	s.cleaning.committed(c)
	// Removed frontends come first: in the same transaction, another service
	// port can have got one of them.
	if changes := s.served(s.removed(nil, c), c); len(changes) > 0 {
		s.cleaner.Update(changes...)
	}
}

// removed appends the frontends that service ports no longer have.
func (s *staleFlows) removed(out []conntrack.FrontendChange, c *table.Commit) []conntrack.FrontendChange {
	for _, change := range c.Changes {
		if change.Before == nil || !s.follows(change.Before.Port.Protocol) {
			continue
		}
		protocol := change.Before.Port.Protocol
		before, now := change.Before.Frontends, frontendsOf(change.After, protocol)
		if slices.EqualFunc(before, now, sameFrontend) {
			continue
		}
		kept := make(map[ruleset.Frontend]struct{}, len(now))
		for _, f := range now {
			kept[f.Frontend] = struct{}{}
		}
		for _, f := range before {
			if _, ok := kept[f.Frontend]; !ok {
				out = append(out, conntrack.FrontendChange{
					Protocol: uint8(protocol), Frontend: destination(c.Family, f.Frontend), Gone: true,
					Owner: change.Before.Service.Name.Namespace,
				})
			}
		}
	}
	return out
}

// served appends the frontends that service ports have, with their endpoints.
func (s *staleFlows) served(out []conntrack.FrontendChange, c *table.Commit) []conntrack.FrontendChange {
	for _, change := range c.Changes {
		before, now := change.Before, change.After
		if now == nil || !s.follows(now.Port.Protocol) {
			continue
		}
		// Serving endpoints need not be usable: a UDP service port whose only
		// endpoint becomes ready begins to serve although its serving endpoints
		// stay the same.
		begins := now.Port.Protocol == cluster.UDP && before != nil && len(before.Cluster) == 0 && len(now.Cluster) > 0
		// While the whole table was damaged, packets may have created flows to
		// no endpoint.
		for _, f := range now.Frontends {
			out = append(out, conntrack.FrontendChange{
				Protocol: uint8(now.Port.Protocol), Frontend: destination(c.Family, f.Frontend), Endpoints: now.Serving,
				Check: begins || c.Whole,
			})
		}
	}
	return out
}

func sameFrontend(a, b ruleset.ServedFrontend) bool { return a.Frontend == b.Frontend }
