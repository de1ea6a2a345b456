package follow

import (
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// staleFlows deletes flows of UDP clients that do not lead to a serving
// endpoint, and attempts to connect by TCP that began while the rules were
// missing.
type staleFlows struct {
	cleaning
	deleted prometheus.Counter
}

func newStaleFlows(config *Config, passes *passMetrics) *staleFlows {
	return &staleFlows{cleaning{passes: passes}, config.Metrics.Counter("nftproxy_stale_flows_deleted_total",
		"Flows that were deleted: of UDP clients whose endpoint was removed, and TCP attempts without rules.")}
}

// open connects to the connection tracking of the calling thread's network
// namespace. If that fails, it logs the error and returns false. Then UDP
// clients that keep their source port can stay with a removed endpoint.
func (s *staleFlows) open() bool {
	conn, err := conntrack.Open()
	if err != nil {
		klog.ErrorS(err, "Stale UDP flows will not be deleted")
		return false
	}
	s.conn, s.cleaner = conn, conn.NewCleaner(conntrack.CleanerConfig{Report: s.report})
	return true
}

func (s *staleFlows) report(r conntrack.Result) {
	s.passes.observe(r)
	s.deleted.Add(float64(r.Deleted))
	if r.Err != nil {
		klog.ErrorS(r.Err, "Failed to delete stale flows, retrying", "changes", r.Changes, "rechecks", r.Rechecks)
		return
	}
	klog.V(2).InfoS("Deleted stale flows",
		"changes", r.Changes, "rechecks", r.Rechecks, "flows", r.Deleted, "elapsed", r.Duration)
}

// committed passes the changes of UDP service ports to the cleaner, which
// decides whether flows may be stale.
//
// The work and the memory grow with the sum of frontends, node addresses and
// endpoints, and not with their product: a NodePort is one frontend, and all
// frontends of a service port share one slice of endpoints.
func (s *staleFlows) committed(c *table.Commit) {
	s.cleaning.committed(c)
	// Removed frontends come first: in the same transaction, another service
	// port can have got one of them.
	s.cleaner.Update(servedFrontends(removedFrontends(c), c)...)
	if !c.Whole {
		return
	}
	var missed []netip.AddrPort
	for _, change := range c.Changes {
		for _, f := range frontendsOf(change.After, cluster.TCP) {
			missed = append(missed, destination(c.Family, f.Frontend))
		}
	}
	s.cleaner.Miss(c.Family, missed)
}

// removedFrontends returns the UDP frontends that service ports no longer have.
func removedFrontends(c *table.Commit) (out []conntrack.FrontendChange) {
	for _, change := range c.Changes {
		before, now := frontendsOf(change.Before, cluster.UDP), frontendsOf(change.After, cluster.UDP)
		if len(before) == 0 || slices.EqualFunc(before, now, sameFrontend) {
			continue
		}
		kept := make(map[ruleset.Frontend]struct{}, len(now))
		for _, f := range now {
			kept[f.Frontend] = struct{}{}
		}
		for _, f := range before {
			if _, ok := kept[f.Frontend]; !ok {
				out = append(out, conntrack.FrontendChange{Frontend: destination(c.Family, f.Frontend), Gone: true})
			}
		}
	}
	return out
}

// servedFrontends appends the UDP frontends that service ports have, with their
// endpoints.
func servedFrontends(out []conntrack.FrontendChange, c *table.Commit) []conntrack.FrontendChange {
	for _, change := range c.Changes {
		before, now := change.Before, change.After
		// Serving endpoints need not be usable: a service port whose only
		// endpoint becomes ready begins to serve although its serving endpoints
		// stay the same.
		begins := before != nil && len(before.Cluster) == 0 && now != nil && len(now.Cluster) > 0
		// While the whole table was damaged, packets may have created flows to
		// no endpoint.
		for _, f := range frontendsOf(now, cluster.UDP) {
			out = append(out, conntrack.FrontendChange{
				Frontend: destination(c.Family, f.Frontend), Endpoints: now.Serving, Check: begins || c.Whole,
			})
		}
	}
	return out
}

func sameFrontend(a, b ruleset.ServedFrontend) bool { return a.Frontend == b.Frontend }
