package explain_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// objects records the objects that a source passes. It implements cluster.Sink.
type objects struct {
	node      *cluster.Node
	services  map[cluster.ServiceName]*cluster.Service
	endpoints map[cluster.ServiceName]map[cluster.EndpointKey]*cluster.Endpoint
}

func (o *objects) Setup() error { return nil }
func (o *objects) Sync() error  { return nil }

func (o *objects) SetNode(n *cluster.Node)                { o.node = n }
func (o *objects) SetService(svc *cluster.Service)        { o.services[svc.Name] = svc }
func (o *objects) DeleteService(name cluster.ServiceName) { delete(o.services, name) }

func (o *objects) SetEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	if o.endpoints[name] == nil {
		o.endpoints[name] = make(map[cluster.EndpointKey]*cluster.Endpoint)
	}
	maps.DeleteFunc(o.endpoints[name], func(key cluster.EndpointKey, _ *cluster.Endpoint) bool {
		return key.Source == source
	})
	for _, e := range endpoints {
		o.endpoints[name][e.EndpointKey] = e
	}
}

// host is a hypothetical node. It implements explain.Routes.
type host struct{ addrs []netip.Addr }

func (h host) isLocal(addr netip.Addr) bool {
	return addr.IsLoopback() || slices.Contains(h.addrs, addr)
}

// interfaceOf returns the interface at which packets of a client arrive.
func (h host) interfaceOf(client netip.Addr) string {
	return []string{"veth1", "cbr0", "eth0"}[client.AsSlice()[client.BitLen()/8-1]%3]
}

func (h host) RouteType(addr netip.Addr) (uint32, error) {
	if h.isLocal(addr) {
		return unix.RTN_LOCAL, nil
	}
	return unix.RTN_UNICAST, nil
}

func (h host) InterfaceIndex(string) (uint32, error) { return 0, unix.ENODEV }

func (h host) Interface(addr netip.Addr) (string, error) { return h.interfaceOf(addr), nil }

// randomRules returns a random configuration.
func randomRules(r tabletest.Random) ruleset.Config {
	modes := []ruleset.DetectLocalMode{
		ruleset.DetectLocalNone, ruleset.DetectLocalClusterCIDR, ruleset.DetectLocalNodeCIDR,
		ruleset.DetectLocalBridgeInterface, ruleset.DetectLocalInterfaceNamePrefix,
	}
	addresses := []ruleset.NodePortAddresses{
		{}, {CIDRs: tabletest.Prefixes("0.0.0.0/0", "::/0")}, {CIDRs: tabletest.Prefixes("10.0.0.0/8", "fd00::/8")},
		{Primary: true, CIDRs: tabletest.Prefixes("127.0.0.0/8", "::1/128")},
	}
	metrics := []ruleset.ServiceMetrics{ruleset.ServiceMetricsOff, ruleset.ServiceMetricsAll}
	return ruleset.Config{
		MasqueradeAll: r.IntN(4) == 0, ServiceMetrics: metrics[r.IntN(len(metrics))], NumberLimit: 1 + r.IntN(6),
		DetectLocal: ruleset.LocalDetection{
			Mode: modes[r.IntN(len(modes))], ClusterCIDRs: []netip.Prefix{r.Prefix(tabletest.EndpointNet)},
			BridgeInterface: "cbr0", InterfaceNamePrefix: "veth",
		},
		NodePortAddresses:  addresses[r.IntN(len(addresses))],
		LocalhostNodePorts: true,
	}
}

// property is a test of random clusters of one family.
type property struct {
	tabletest.Random
	oracle
	table *table.Table
}

func newProperty(t *testing.T, f nft.Family, seed uint64) *property {
	t.Helper()
	p := &property{Random: tabletest.NewRandom(seed, 3, f)}
	p.oracle = oracle{
		family: f, rules: randomRules(p.Random), host: host{tabletest.Node().IPs},
		objects: objects{
			services:  make(map[cluster.ServiceName]*cluster.Service),
			endpoints: make(map[cluster.ServiceName]map[cluster.EndpointKey]*cluster.Endpoint),
		},
	}
	for n := range 3 {
		p.addrs = append(p.addrs, p.Addr(tabletest.NodeNet, n+1))
	}
	tables, err := table.New(table.Config{Rules: p.rules}, f)
	if err != nil {
		t.Fatal(err)
	}
	p.table = tables[0]
	p.pass().SetNode(p.Node())
	return p
}

// pass returns the sink of changes.
func (p *property) pass() cluster.Sink { return cluster.Sinks{p.table, &p.objects} }

func pick[T any](r *rand.Rand, choices []T) T { return choices[r.IntN(len(choices))] }

// query returns a random packet. Most are to frontends of Services.
func (p *property) query() explain.Query {
	q := explain.Query{Protocol: pick(p.Rand, cluster.Protocols())}
	q.Destination = netip.AddrPortFrom(p.destination(), uint16(80+p.IntN(4)))
	switch {
	case q.Destination.Addr().IsLoopback():
		q.Destination = netip.AddrPortFrom(q.Destination.Addr(), uint16(tabletest.FirstNodePort+p.IntN(8)))
		q.Source = q.Destination.Addr()
		return q
	case p.isLocal(q.Destination.Addr()):
		q.Destination = netip.AddrPortFrom(q.Destination.Addr(), uint16(tabletest.FirstNodePort+p.IntN(8)))
	}
	for !p.consistent(q.Source) {
		q.Source = p.client()
	}
	return q
}

// destination returns an address of a Service or of the node, or another one.
func (p *property) destination() netip.Addr {
	var ours []netip.Addr
	for _, svc := range p.services {
		ours = slices.Concat(ours, svc.ClusterIPs, svc.LoadBalancerIPs, svc.ExternalIPs)
	}
	slices.SortFunc(ours, netip.Addr.Compare) // a map has no order
	switch n := p.IntN(20); {
	case n < 11 && len(ours) > 0:
		return pick(p.Rand, ours)
	case n < 17:
		return pick(p.Rand, p.nodeAddrs())
	case n < 18:
		return p.Addr(tabletest.ClusterNet+byte(p.IntN(2)), 50+p.IntN(50))
	case n < 19:
		return p.Addr(tabletest.EndpointNet, p.IntN(tabletest.RandomEndpoints))
	}
	return ruleset.LocalhostAddr(p.family)
}

// nodeAddrs returns the addresses of the node.
func (p *property) nodeAddrs() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(p.addrs), func(addr netip.Addr) bool { return !p.family.Of(addr) })
}

// client returns the address of a client: one of this node, a pod, the first or
// last address of a source range, or another one.
func (p *property) client() netip.Addr {
	var ranges []netip.Prefix
	for _, name := range slices.SortedFunc(maps.Keys(p.services), cluster.ServiceName.Compare) {
		ranges = append(ranges, p.services[name].SourceRanges...)
	}
	switch n := p.IntN(8); {
	case n < 2:
		return pick(p.Rand, p.nodeAddrs())
	case n < 5:
		return p.Addr(tabletest.EndpointNet, p.IntN(2*tabletest.RandomEndpoints))
	case n < 7 && len(ranges) > 0:
		return p.Addr(byte(p.IntN(3)), p.IntN(500))
	}
	return p.destination()
}

// consistent reports whether a client is not an endpoint, or all its
// EndpointSlices agree whether it is on this node: otherwise it is not defined
// whether it reaches itself.
func (p *property) consistent(client netip.Addr) bool {
	if !client.IsValid() || client.IsLoopback() {
		return false
	}
	here, elsewhere := false, false
	for _, endpoints := range p.endpoints {
		for _, e := range endpoints {
			if e.Addr == client {
				here = here || e.Node == p.node.Name || e.Node == ""
				elsewhere = elsewhere || (e.Node != p.node.Name && e.Node != "")
			}
		}
	}
	return !here || !elsewhere
}

// check compares the walk through the expected table with the oracle.
func (p *property) check(t *testing.T, expected *table.Expected, q explain.Query) fates {
	t.Helper()
	r, err := explain.Explain(expected, p.host, q)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	got := make(fates)
	for _, o := range r.Outcomes {
		f := fate{o.Action, o.Endpoint, o.Masqueraded, o.RejectWith, p.mainReason(q, o.Reason.Code)}
		got[f] = o.Probability.RatString()
	}
	want := p.predict(q)
	if !maps.Equal(got, want) {
		var walk strings.Builder
		r.Print(&walk, true)
		t.Fatalf("%v from %v: got %v\nwant %v\n%s", q.Destination, q.Source, got, want, &walk)
	}
	return got
}

// The outcomes in the expected table of a random cluster are those that
// follow from the objects of the cluster. All kinds of outcomes occur.
func TestRandomClusters(t *testing.T) {
	seen, seeds := make(map[ruleset.Reason]int), uint64(20)
	if testing.Short() { // on emulated machines
		seeds = 2
	}
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", f, seed), func(t *testing.T) {
				p := newProperty(t, f, seed)
				for range 40 {
					for range 1 + p.IntN(12) {
						p.Change(p.pass())
					}
					expected := mustExpect(t, p.table)
					for range 50 {
						for f := range p.check(t, expected, p.query()) {
							seen[f.reason]++
						}
					}
				}
			})
		}
	}
	for _, reason := range []ruleset.Reason{
		"", ruleset.NoEndpoints, ruleset.NoLocalEndpoints, ruleset.NoWeight, ruleset.UnknownPort,
		ruleset.UnallocatedAddress, ruleset.SourceRange, ruleset.NoService, ruleset.Localhost,
		ruleset.OutsideCluster, ruleset.MasqueradeAll, ruleset.ExternalPolicy, ruleset.FromNode, ruleset.Hairpin,
	} {
		if seen[reason] < 10 && !testing.Short() {
			t.Errorf("reason %q: got %d packets, want at least 10", reason, seen[reason])
		}
	}
}

// The walk of a packet through the expected table of a random cluster is the
// walk through the table in the kernel.
func TestExpectedTable(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", f, seed), func(t *testing.T) {
				tabletest.NewNode(t)
				p := newProperty(t, f, seed)
				if err := p.table.Setup(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { p.table.Close() })
				for range 5 {
					for range 8 {
						p.Change(p.pass())
					}
					tabletest.Sync(t, p.table)
					p.compare(t)
				}
			})
		}
	}
}

// compare compares the walks of packets through the expected table and through
// the table in the kernel.
func (p *property) compare(t *testing.T) {
	t.Helper()
	kernel, err := explain.OpenKernel(p.family)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	expected := mustExpect(t, p.table)
	for range 50 {
		q := p.query()
		inKernel, err := kernel.Explain(q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		inExpected, err := explain.Explain(expected, kernel, q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if got, want := toJSON(t, inExpected), toJSON(t, inKernel); got != want {
			t.Fatalf("%+v: expected table:\n%s\nkernel:\n%s", q, got, want)
		}
	}
}

func toJSON(t *testing.T, r *explain.Result) string {
	t.Helper()
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
