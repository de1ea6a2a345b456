package explain_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/rendezvous"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/oracle"
	"github.com/nftproxy/nftproxy/test/random"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

var (
	clusters     = flag.Uint64("clusters", 6, "number of random clusters of each family of TestRandomClusters")
	firstCluster = flag.Uint64("first-cluster", 0, "seed of the first of them")
)

// host is a hypothetical node. It implements walk.Host.
type host struct{ addrs []netip.Addr }

func (h host) RouteType(addr netip.Addr) (uint32, error) {
	if addr.IsLoopback() || slices.Contains(h.addrs, addr) {
		return unix.RTN_LOCAL, nil
	}
	return unix.RTN_UNICAST, nil
}

func (host) InterfaceIndex(string) (uint32, error) { return 0, unix.ENODEV }

// Interface implements walk.Host: clients are behind three interfaces.
func (host) Interface(client netip.Addr) (string, error) {
	return []string{"veth1", "cbr0", "eth0"}[client.AsSlice()[client.BitLen()/8-1]%3], nil
}

// content is a table in the kernel of which everything is read once.
type content struct {
	walk.Table
	rows map[string]map[nft.Tuple]nft.Row
}

func (c content) BaseChain(point nft.HookPoint) (string, error) {
	return ruleset.BaseChainName(point), nil
}

func (c content) Row(set *nft.Set, key nft.Tuple) (found nft.Row, err error) {
	if c.rows[set.Name] == nil {
		c.rows[set.Name] = make(map[nft.Tuple]nft.Row)
	}
	found, ok := c.rows[set.Name][key]
	if !ok {
		found, err = c.Table.Row(set, key)
		c.rows[set.Name][key] = found
	}
	return found, err
}

// judge compares the rules of random clusters with the oracle.
type judge struct {
	tabletest.Random
	host
	rules ruleset.Config
	table *table.Table
	oracle.Cluster
	connections int
	seen        map[ruleset.Code]int
}

func newJudge(t *testing.T, f nft.Family, seed uint64) *judge {
	t.Helper()
	tabletest.NewNode(t)
	j := &judge{
		Random: tabletest.NewRandom(seed, 3, f), seen: make(map[ruleset.Code]int),
		host: host{slices.Concat(random.NodeAddrs(), random.SecondAddrs(), []netip.Addr{
			// A program of this node listens at these addresses of a service
			// CIDR.
			lab.AddrIn(lab.ServiceRanges()[0], 99), lab.AddrIn(lab.ServiceRanges()[1], 99),
		})},
	}
	j.rules = j.randomRules()
	j.Config = oracle.Config{
		MasqueradeAll: j.rules.MasqueradeAll, DetectLocalMode: string(j.rules.DetectLocal.Mode),
		ClusterCIDRs:        j.rules.DetectLocal.ClusterCIDRs,
		BridgeInterface:     j.rules.DetectLocal.BridgeInterface,
		InterfaceNamePrefix: j.rules.DetectLocal.InterfaceNamePrefix,
		NodePortCIDRs:       j.rules.NodePortAddresses.CIDRs, NodePortPrimary: j.rules.NodePortAddresses.Primary,
		LocalhostNodePorts: j.rules.LocalhostNodePorts,
	}
	j.Addrs = j.host.addrs
	tables, err := table.New(table.Config{Rules: j.rules}, f)
	must.NoError(t, err)
	j.table = tables[0]
	j.table.SetNode(j.State().Node)
	t.Cleanup(func() { j.table.Close() })
	must.NoError(t, j.table.Setup())
	return j
}

// randomRules returns a random configuration.
func (j *judge) randomRules() ruleset.Config {
	prefixes := tabletest.Prefixes
	return ruleset.Config{
		MasqueradeAll: j.Chance(25), NumberLimit: 1 + j.IntN(6),
		ServiceMetrics: []ruleset.ServiceMetrics{ruleset.ServiceMetricsOff, ruleset.ServiceMetricsAll}[j.IntN(2)],
		DetectLocal: ruleset.LocalDetection{
			Mode: random.Pick(j.Generator, []ruleset.DetectLocalMode{
				ruleset.DetectLocalNone, ruleset.DetectLocalClusterCIDR, ruleset.DetectLocalNodeCIDR,
				ruleset.DetectLocalBridgeInterface, ruleset.DetectLocalInterfaceNamePrefix,
			}),
			ClusterCIDRs:    tabletest.Rules().DetectLocal.ClusterCIDRs,
			BridgeInterface: "cbr0", InterfaceNamePrefix: "veth",
		},
		NodePortAddresses: random.Pick(j.Generator, []ruleset.NodePortAddresses{
			{}, {CIDRs: prefixes("0.0.0.0/0", "::/0")}, {CIDRs: prefixes("172.16.0.0/12", "fd00::/8")},
			{Primary: true, CIDRs: prefixes("127.0.0.0/8", "::1/128")}, {CIDRs: prefixes("172.16.0.0/12")},
		}),
		LocalhostNodePorts: true,
	}
}

// For every frontend, source and draw of random clusters, the walk of a packet
// through the rules of the kernel ends as the oracle allows, with the right
// probability and reason. The walk through the expected table is the same. All
// kinds of outcomes occur.
//
//	go test ./cmd/kube-proxy/operator/explain -run TestRandomClusters -clusters=1000
func TestRandomClusters(t *testing.T) {
	if testing.Short() { // on emulated machines
		*clusters = 1
	}
	var mu sync.Mutex
	seen, states, connections, began := make(map[ruleset.Code]int), 0, 0, time.Now()
	t.Run("clusters", func(t *testing.T) {
		for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
			for seed := *firstCluster; seed < *firstCluster+*clusters; seed++ {
				t.Run(fmt.Sprint(f, "/", seed), func(t *testing.T) {
					t.Parallel()
					j := newJudge(t, f, seed)
					for range 10 {
						j.step(t)
					}
					mu.Lock()
					defer mu.Unlock()
					states, connections = states+10, connections+j.connections
					for reason, n := range j.seen {
						seen[reason] += n
					}
				})
			}
		}
	})
	perMinute := float64(states) / time.Since(began).Minutes()
	t.Logf("%d states, %d connections, %.0f states a minute", states, connections, perMinute)
	for _, reason := range []ruleset.Code{
		"", ruleset.NoEndpoints, ruleset.NoLocalEndpoints, ruleset.NoWeight, ruleset.UnknownPort,
		ruleset.UnallocatedAddress, ruleset.SourceRange, ruleset.NoService, ruleset.Localhost,
		ruleset.OutsideCluster, ruleset.MasqueradeAll, ruleset.ExternalPolicy, ruleset.FromNode, ruleset.Hairpin,
	} {
		if seen[reason] < 10 && *clusters > 4 {
			t.Errorf("reason %q: got %d packets, want at least 10", reason, seen[reason])
		}
	}
}

// step changes the cluster and judges all connections.
func (j *judge) step(t *testing.T) {
	t.Helper()
	for range 1 + j.IntN(12) {
		j.Change(j.table)
	}
	tabletest.Sync(t, j.table)
	j.Node = j.State().Node
	j.Services, j.Cluster.Endpoints = j.State().Served()
	kernel, err := node.OpenKernel(j.Family)
	must.NoError(t, err)
	defer kernel.Close()
	table := content{walk.Cache(kernel), make(map[string]map[nft.Tuple]nft.Row)}
	expected := mustExpect(t, j.table)
	for _, q := range j.queries() {
		j.connections++
		got, err := explain.Explain(table, j.host, q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		for _, o := range got.Outcomes {
			j.seen[o.Reason.Code]++
		}
		if why := j.difference(q, got); why != "" {
			var text strings.Builder
			got.Print(&text, true)
			name, _, _ := strings.Cut(strings.TrimPrefix(got.ServicePort, random.Namespace+"/"), ":")
			if a := j.State().Named(name); a != nil {
				text.WriteString(random.YAML(a.Service(), a.Slices()))
			}
			t.Fatalf("%s\n%s", why, &text)
		}
		if j.IntN(20) > 0 {
			continue
		}
		same, err := explain.Explain(expected, j.host, q)
		must.NoError(t, err)
		inExpected, err := json.MarshalIndent(same, "", " ")
		must.NoError(t, err)
		if inKernel, _ := json.MarshalIndent(got, "", " "); !bytes.Equal(inKernel, inExpected) {
			t.Fatalf("%+v: expected table:\n%s\nkernel:\n%s", q, inExpected, inKernel)
		}
	}
}

// queries returns connections to all frontends, and to some other destinations,
// from all kinds of sources.
func (j *judge) queries() (all []explain.Query) {
	add := func(protocol cluster.Protocol, number uint16, addrs ...netip.Addr) {
		for _, addr := range addrs {
			to := netip.AddrPortFrom(addr, number)
			if j.Family.Of(addr) && number != 0 {
				all = append(all, j.fromAll(explain.Query{Destination: to, Protocol: protocol})...)
			}
		}
	}
	nodes := append([]netip.Addr{ruleset.LocalhostAddr(j.Family)}, j.host.addrs...)
	for _, svc := range j.Services {
		vips := slices.Concat(svc.ClusterIPs, svc.LoadBalancerIPs, svc.ExternalIPs)
		for _, port := range svc.Ports {
			add(port.Protocol, port.Port, vips...)
			add(port.Protocol, port.NodePort, nodes...)
		}
		add(random.Pick(j.Generator, cluster.Protocols()), 81, vips...)
	}
	for _, r := range slices.Concat(lab.ServiceRanges(), random.SecondServiceRanges(), lab.ExternalRanges()) {
		add(cluster.TCP, 80, lab.AddrIn(r, j.IntN(50)), lab.AddrIn(r, 99))
	}
	add(cluster.TCP, 22, j.host.addrs...)
	add(cluster.TCP, 8080, j.Pod())
	return all
}

// fromAll returns a connection from endpoints on all nodes, from another pod,
// this node, clients that source ranges can contain, and the destination
// itself.
func (j *judge) fromAll(q explain.Query) (all []explain.Query) {
	to := q.Destination.Addr()
	sources := append([]netip.Addr{to, j.Outside(), j.Outside()}, j.host.addrs...)
	for _, r := range lab.PodRanges() {
		sources = append(sources, lab.AddrIn(r, 777))
	}
	for _, addrs := range j.Generator.Endpoints {
		sources = append(sources, addrs[:]...)
	}
	slices.SortFunc(sources, netip.Addr.Compare) // a map has no order
	for _, q.Source = range slices.Compact(sources) {
		if j.Family.Of(q.Source) && j.IsConsistent(q.Source) && (!to.IsLoopback() || to == q.Source) {
			all = append(all, q)
		}
	}
	return all
}

// fate describes an outcome of explain or of the oracle.
func fate(action, rejectWith, reason string, endpoint netip.AddrPort, masqueraded bool) string {
	return fmt.Sprintf("%s %s masqueraded=%v %s %s", action, endpoint, masqueraded, rejectWith, reason)
}

// difference returns the difference between explain and the oracle, "" if there
// is none.
func (j *judge) difference(q explain.Query, r *explain.Result) string {
	in, _ := j.Interface(q.Source)
	outcomes := j.Outcomes(oracle.Connection{
		Source: q.Source, Interface: in, Destination: q.Destination, Protocol: q.Protocol,
	})
	isClusterIP := func(svc *cluster.Service) bool { return slices.Contains(svc.ClusterIPs, q.Destination.Addr()) }
	got, want := make(map[string]string), make(map[string]string)
	for _, o := range r.Outcomes {
		reason := o.Reason.Code
		if reason != "" && outcomes[0].Reason == "ExternalPolicy" && slices.ContainsFunc(j.Services, isClusterIP) {
			reason = ruleset.ExternalPolicy // the packet is marked twice
		}
		f := fate(string(o.Action), o.RejectWith, string(reason), o.Endpoint, o.Masqueraded)
		got[f] = o.Probability.RatString()
	}
	for i, share := range shares(outcomes) {
		o, with := outcomes[i], ""
		if o.Action == oracle.Refused {
			with = map[bool]string{true: "TCP reset", false: "ICMP port unreachable"}[q.Protocol == cluster.TCP]
		}
		want[fate(string(o.Action), with, o.Reason, o.Endpoint, o.Masqueraded)] = share.RatString()
	}
	svc, name := outcomes[0].Service, ""
	if svc != nil {
		name = svc.Name.String()
	}
	if svc != nil && svc.Balance == cluster.BalanceSourceHash && len(got) == 1 {
		for f := range got { // one row, which the hash of the client selects
			got[f] = cmp.Or(want[f], "none")
			maps.DeleteFunc(want, func(o, _ string) bool { return o != f })
		}
	}
	if owner, _, _ := strings.Cut(r.ServicePort, ":"); owner == name && maps.Equal(got, want) {
		return ""
	}
	return fmt.Sprintf("%s %s from %s: got %s %v\nwant %s %v", q.Destination, q.Protocol, q.Source, r.ServicePort, got,
		name, want)
}

// shares returns the shares of connections that outcomes get, by index. Those
// without connections are left out.
func shares(outcomes []oracle.Outcome) map[int]*big.Rat {
	svc, all := outcomes[0].Service, make(map[int]*big.Rat)
	other := func(o oracle.Outcome) bool { return o.Weight != outcomes[0].Weight }
	if len(outcomes) == 1 || svc.AffinityTimeout > 0 ||
		svc.Balance == cluster.BalanceRandom && !slices.ContainsFunc(outcomes, other) {
		for i := range outcomes {
			all[i] = big.NewRat(1, int64(len(outcomes)))
		}
		return all
	}
	var endpoints []rendezvous.Endpoint
	for _, o := range outcomes {
		endpoints = append(endpoints, rendezvous.Endpoint{AddrPort: o.Endpoint, Weight: o.Weight})
	}
	rows := rendezvous.Table(endpoints, cmp.Or(svc.HashTableSize, cluster.DefaultHashTableSize))
	for _, i := range rows {
		all[int(i)] = new(big.Rat).Add(cmp.Or(all[int(i)], new(big.Rat)), big.NewRat(1, int64(len(rows))))
	}
	return all
}
