package checker

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

// quick is a check with an effect after a second. It waits for as long as
// possible.
var quick = cluster.HealthCheck{PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: 1, SuccessThreshold: 1}

// newTestChecker returns a Checker with a table that has a Service at
// 10.96.0.1:80 and NodePort 30080 of the node 192.0.2.1.
func newTestChecker(tb testing.TB) *Checker {
	tb.Helper()
	tables, err := table.New(table.Config{}, nft.IPv4)
	must.NoError(tb, err)
	t := tables[0]
	node := netip.MustParseAddr("192.0.2.1")
	t.SetNode(&cluster.Node{Name: "n1", IPs: []netip.Addr{node}, LocalIPs: []netip.Addr{node}})
	t.SetService(&cluster.Service{
		Name: cluster.ServiceName{Namespace: "shop", Name: "web"}, Families: []nft.Family{nft.IPv4},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports:      []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80, NodePort: 30080}}, HealthCheck: &quick,
	})
	return New(Config{
		Query: func(_ context.Context, _ nft.Family, ask func(*table.Table) error) error { return ask(t) },
		Sync:  func(nft.Family) {}, Metrics: metric.NewSet(nft.IPv4),
	})
}

// commit returns the commit of a plan of a service port that replaces another
// one.
func commit(before, after *ruleset.Plan) *table.Commit {
	return &table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{Before: before, After: after}}}
}

// plan returns the plan of a service port of the Service shop/web.
func plan(check *cluster.HealthCheck, protocol cluster.Protocol, endpoints ...string) *ruleset.Plan {
	p := &ruleset.Plan{
		Service: &cluster.Service{Name: cluster.ServiceName{Namespace: "shop", Name: "web"}, HealthCheck: check},
		Port:    cluster.ServicePort{Protocol: protocol, Port: 80},
	}
	for _, e := range parse(endpoints) {
		p.Cluster = append(p.Cluster, ruleset.Target{Addr: e.Addr(), Port: e.Port()})
	}
	return p
}

// Commits define what is checked: endpoints of TCP that the kernel has, those
// that are ejected included, while the Service asks for it.
func TestObserve(t *testing.T) {
	check := cluster.DefaultHealthCheck()
	with := plan(&check, cluster.TCP, "10.0.0.2:80", "10.0.0.1:80")
	ejected := plan(&check, cluster.TCP, "10.0.0.2:80")
	ejected.Ejected = &ruleset.Ejected{Cluster: []cluster.Ejection{{Endpoint: parse([]string{"10.0.0.1:80"})[0]}}}
	without := plan(nil, cluster.TCP, "10.0.0.1:80")
	for _, tt := range []struct {
		name          string
		before, after *ruleset.Plan
		want          int
	}{
		{"another Service", nil, without, 0},
		{"UDP", nil, plan(&check, cluster.UDP, "10.0.0.1:80"), 0},
		{"with a check", nil, with, 2},
		{"an ejection", with, ejected, 2},
		{"fewer endpoints", with, plan(&check, cluster.TCP, "10.0.0.2:80"), 1},
		{"without a check", with, without, 0},
		{"removed", with, nil, 0},
	} {
		c := newTestChecker(t)
		if tt.before != nil {
			c.Observe(commit(nil, tt.before))
			c.takeNews(time.Now())
		}
		c.Observe(commit(tt.before, tt.after))
		c.takeNews(time.Now())
		if got := c.schedule.summary().Endpoints; got != tt.want {
			t.Errorf("%s: got %d endpoints, want %d", tt.name, got, tt.want)
		}
		if len(c.changes) > 0 {
			t.Errorf("%s: changes are left", tt.name)
		}
	}
}

// No check is sent to the cluster's infrastructure, whichever manifest names
// it.
func TestInfrastructure(t *testing.T) {
	nstest.Enter(t)
	c := newTestChecker(t)
	check := cluster.DefaultHealthCheck()
	forbidden := []string{"10.96.0.1:80", "127.0.0.1:80", "169.254.169.254:80", "192.0.2.1:30080"}
	c.schedule.set(portOf("shop/web"), &check, parse(forbidden))
	now := time.Now()
	c.schedule.take(now, burst)
	c.send(t.Context(), c.schedule.take(now.Add(check.Period()), burst))
	c.takeNews(now)
	if got := c.schedule.summary().Unsent; got != len(forbidden) {
		t.Errorf("got %d checks that were not sent, want %d", got, len(forbidden))
	}
	if got := counted(t, c, notSent); int(got) != len(forbidden) {
		t.Errorf("metric: got %v, want %d", got, len(forbidden))
	}
}

// counted returns the number of checks with a result.
func counted(tb testing.TB, c *Checker, result string) float64 {
	tb.Helper()
	var m dto.Metric
	must.NoError(tb, c.checks.WithLabelValues(result).Write(&m))
	return m.GetCounter().GetValue()
}

// An endpoint that refuses connections is unhealthy until it accepts some. The
// table gets both.
func TestRun(t *testing.T) {
	nstest.Enter(t)
	lo, err := netlink.LinkByName("lo")
	must.NoError(t, err)
	must.NoError(t, netlink.LinkSetUp(lo))
	must.NoError(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet("192.0.2.77/32")}))
	c := newTestChecker(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var listener net.Listener
	c.config.Sync = func(nft.Family) {
		if listener != nil {
			cancel()
			return
		}
		listener, err = net.Listen("tcp4", "192.0.2.77:80")
		must.NoError(t, err)
		must.Close(t, listener)
	}
	c.Observe(commit(nil, plan(&quick, cluster.TCP, "192.0.2.77:80")))
	c.Run(ctx)
	if listener == nil {
		t.Fatal("the endpoint was not unhealthy")
	}
	if all := c.schedule.unhealthy(portOf("shop/web")); len(all) > 0 {
		t.Errorf("the endpoint is still unhealthy: %v", all)
	}
}

// A table that is busy gets unhealthy endpoints later. Its checks are not sent.
func TestBusy(t *testing.T) {
	nstest.Enter(t)
	c := newTestChecker(t)
	query, busy := c.config.Query, true
	c.config.Query = func(ctx context.Context, f nft.Family, ask func(*table.Table) error) error {
		if busy {
			return context.DeadlineExceeded
		}
		return query(ctx, f, ask)
	}
	check := cluster.DefaultHealthCheck()
	c.schedule.set(portOf("shop/web"), &check, parse([]string{"10.0.0.1:80"}))
	c.schedule.changed[eject.Port{Family: nft.IPv4}] = struct{}{}
	if next := c.act(t.Context()); next.IsZero() || time.Until(next) > busyPause {
		t.Errorf("got next act in %v", time.Until(next))
	}
	if busy = false; !c.apply(t.Context()) {
		t.Error("the table did not get the unhealthy endpoints")
	}
}
