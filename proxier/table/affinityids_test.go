package table

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// affinityPlan returns a plan of a service port with session affinity.
func affinityPlan(endpoints ...string) *ruleset.Plan {
	p := &ruleset.Plan{
		Service: &cluster.Service{
			Name: cluster.ServiceName{Namespace: "default", Name: "web"}, AffinityTimeout: time.Hour,
		},
		Port: cluster.ServicePort{Protocol: cluster.TCP, Port: 80},
	}
	for _, e := range endpoints {
		at := netip.MustParseAddrPort(e)
		p.Cluster = append(p.Cluster, ruleset.Target{Addr: at.Addr(), Port: at.Port()})
	}
	return p
}

// A plan with an absent endpoint that is not committed does not keep the id
// longer.
func TestAbsentIDInPlan(t *testing.T) {
	ids := newAffinityIDs(1)
	e := affinityEndpoint{"port", netip.MustParseAddrPort("10.244.1.5:8080")}
	absent := knownID{clientID{id: firstID}, time.Now().Add(absenceTime), false}
	ids.known[e] = absent
	if got := ids.earlier(e); got != absent.clientID {
		t.Errorf("got id %v, want %v", got, absent.clientID)
	}
	if got := ids.known[e]; got != absent {
		t.Errorf("in a plan: got %v, want %v", got, absent)
	}
}

// An endpoint that is absent for less than absenceTime keeps its id, and so
// its clients. If it is added again later, it gets another id.
func TestIDsOfAbsentEndpoints(t *testing.T) {
	ids := newAffinityIDs(1)
	both := affinityPlan("10.244.0.1:80", "10.244.0.2:80")
	ids.assign(nil, both)
	first := both.Cluster[0].ID
	replace := func(before, next *ruleset.Plan) *ruleset.Plan {
		ids.forgetOld()
		ids.assign(before, next)
		ids.release(before, next)
		return next
	}
	expire := func() {
		for e, was := range ids.known {
			was.until = time.Now().Add(-time.Second)
			ids.known[e] = was
		}
	}

	one := replace(both, affinityPlan("10.244.0.2:80"))
	again := replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := again.Cluster[0].ID; got != first {
		t.Errorf("id after a short absence: got %d, want %d", got, first)
	}

	one = replace(again, affinityPlan("10.244.0.2:80"))
	expire()
	again = replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := again.Cluster[0].ID; got == first {
		t.Errorf("id after a long absence: got %d again, want another one", got)
	}
	if got, want := again.Cluster[1].ID, both.Cluster[1].ID; got != want {
		t.Errorf("id of the endpoint that stayed: got %d, want %d", got, want)
	}

	expire()
	if ids.forgetOld(); len(ids.known) != 0 {
		t.Errorf("got %d ids of absent endpoints, want 0", len(ids.known))
	}
}

// Up to ten endpoints are in no group. An endpoint that stays keeps its id and
// group, and no group gets too many members, while a service port grows,
// shrinks and replaces its endpoints.
func TestAffinityGroups(t *testing.T) {
	ids := newAffinityIDs(1)
	r := rand.New(rand.NewPCG(1, 2))
	var before *ruleset.Plan
	for _, n := range []int{1, 3, 4, 5, 20, 50, 50, 200, 40, 7, 2, 6} {
		var endpoints []string
		for i := range n {
			endpoints = append(endpoints, fmt.Sprintf("10.244.%d.%d:80", r.IntN(2), i))
		}
		next := affinityPlan(endpoints...)
		ids.forgetOld()
		ids.assign(before, next)
		ids.release(before, next)
		checkGroups(t, before, next)
		before = next
	}
}

func checkGroups(t *testing.T, before, next *ruleset.Plan) {
	t.Helper()
	was := make(map[netip.AddrPort]*ruleset.Target)
	for target := range targets(before) {
		was[target.AddrPort()] = target
	}
	members, listed := make(map[uint32]int), 0
	for target := range targets(next) {
		if old := was[target.AddrPort()]; old != nil && *old != *target {
			t.Errorf("%s: got id %d, group %d; had %d, %d", target.Addr, target.ID, target.Group, old.ID, old.Group)
		}
		if target.Group == 0 {
			listed++
		} else if members[target.Group]++; members[target.Group] > 22 { // of 200 endpoints
			t.Errorf("group %d: got %d members, want at most 22", target.Group, members[target.Group])
		}
	}
	if n := len(next.Cluster); listed > listedEndpoints || len(members) > max(2, n/4) {
		t.Errorf("%d endpoints: got %d in no group and %d groups", n, listed, len(members))
	}
}

// A process that finds chains of an earlier version, in which endpoints are in
// no group, leaves them as they are. New endpoints are in groups, which later
// processes keep.
func TestRestartWithGroups(t *testing.T) {
	tabletest.NewNamespace(t)
	const last = 40
	sync := func(table *Table, endpoints int) []ruleset.Target {
		tabletest.PassSample(table)
		for i := range endpoints {
			tabletest.SetEndpoint(table, sticky, tabletest.Endpoint(fmt.Sprintf("10.244.3.%d", i+1)))
		}
		tabletest.Sync(t, table)
		checkTable(t, table)
		return committedPlan(table, sticky).Cluster
	}
	first := newTable(t, sampleConfig(), nft.IPv4)
	for _, target := range []string{"1.8", "2.8", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8"} {
		e := affinityEndpoint{"default.sticky.tcp.http", netip.MustParseAddrPort("10.244." + target + ":8080")}
		first.ids.known[e] = knownID{clientID: clientID{id: first.ids.new()}}
	}
	before := sync(first, 8)
	for _, endpoints := range []int{8, last, last} {
		now := sync(newTable(t, sampleConfig(), nft.IPv4), endpoints)
		for _, target := range before {
			if !slices.Contains(now, target) {
				t.Errorf("%d endpoints: target %v changed: %v", endpoints, target, now)
			}
		}
		before = now
	}
	listed := 0
	for _, target := range before {
		if target.Group == 0 {
			listed++
		}
	}
	if len(before) != last+2 || listed != 10 {
		t.Errorf("got %d targets, %d of them in no group, want %d and 10", len(before), listed, last+2)
	}
}

// affinitySetOf returns the name of the set that contains a Service's
// clients.
func affinitySetOf(table *Table, name cluster.ServiceName) string {
	return table.rules.AffinitySet(committedPlan(table, name)).Name
}

// A process that starts with the table of an earlier process leaves it equal,
// and clients keep their endpoints. The ids of removed endpoints are not used
// again.
func TestRestart(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			tabletest.NewNamespace(t)
			endpoint := func(last string) *cluster.Endpoint {
				if f == nft.IPv6 {
					return tabletest.Endpoint("fd00:244:1::" + last)
				}
				return tabletest.Endpoint("10.244.1." + last)
			}
			config := sampleConfig()
			start := func(endpoints ...string) *Table {
				config.Rules.AffinitySeed++ // a process does not know the seed of an earlier one
				table := newTable(t, config, f)
				tabletest.PassSample(table)
				for _, last := range endpoints {
					tabletest.SetEndpoint(table, sticky, endpoint(last))
				}
				tabletest.Sync(t, table)
				return table
			}
			// One endpoint replaces another, so that the ids differ from
			// those that an empty table begins with.
			first := start()
			tabletest.SetEndpoint(first, sticky, endpoint("1"))
			tabletest.Sync(t, first)
			tabletest.DeleteEndpoint(first, sticky, endpoint("1").EndpointKey)
			tabletest.SetEndpoint(first, sticky, endpoint("2"))
			tabletest.Sync(t, first)
			const lastID = firstID + 3
			if got := committedPlan(first, sticky).Cluster[2].ID; got != lastID {
				t.Fatalf("id of the last endpoint: got %d, want %d", got, lastID)
			}
			client := map[nft.Family]string{nft.IPv4: "198.51.100.7", nft.IPv6: "2001:db8:51::7"}[f]
			set := affinitySetOf(first, sticky)
			tabletest.NFT(t, "", "add", "element", f.String(), ruleset.TableName, set,
				fmt.Sprintf("{ %s . %d timeout 1h }", client, lastID))
			before := listTable(t, f)

			second := start("2")
			if got, want := withoutAffinity(listTable(t, f)), withoutAffinity(before); !slices.Equal(got, want) {
				t.Errorf("the restart changed the table:\n%s", difference(want, got))
			}
			// The affinity set keeps the clients of a removed endpoint.
			tabletest.DeleteEndpoint(second, sticky, endpoint("2").EndpointKey)
			tabletest.Sync(t, second)
			third := start("3")
			checkTable(t, third, set)
			for _, target := range committedPlan(third, sticky).Cluster {
				kept := target.ID == firstID || target.ID == firstID+1
				if !kept && target.ID < 2*idBlock {
					t.Errorf("%s: got id %d, which the earlier processes reserved", target.AddrPort(), target.ID)
				}
			}
		})
	}
}

// After a restart, endpoints keep their ids in spite of a refused service
// port, a failed commit and a rewrite.
func TestRestartWithFailures(t *testing.T) {
	tabletest.NewNamespace(t)
	want := committedPlan(newSample(t), sticky).Cluster

	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	refused := refusedService()
	table.SetService(refused)
	tabletest.SetEndpoint(table, refused.Name, tabletest.Endpoint("10.244.0.66"))
	if err := table.Fprint(io.Discard); err != nil {
		t.Fatal(err)
	}
	k := injectFaults(table)
	k.FailCommits()
	if err := table.Sync(); !errors.Is(err, tabletest.ErrCommit) {
		t.Fatalf("got %v, want %v", err, tabletest.ErrCommit)
	}
	k.OnCommit = nil
	tabletest.Sync(t, table)
	if got := committedPlan(table, sticky).Cluster; !slices.Equal(got, want) {
		t.Errorf("after a restart: got %v, want %v", got, want)
	}
	table.keeper.Distrust(keep.RewriteDamage, "test")
	tabletest.Sync(t, table)
	if got := committedPlan(table, sticky).Cluster; !slices.Equal(got, want) {
		t.Errorf("after a rewrite: got %v, want %v", got, want)
	}
}

// A process does not use the ids that earlier processes assigned to endpoints
// which were removed, although no rule contains these ids.
func TestIDsAreNotReused(t *testing.T) {
	tabletest.NewNamespace(t)
	svc := tabletest.Service("sticky", "10.96.0.1", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	const processes, endpoints = 4, 20
	owners := make(map[uint32]string)
	for process := range processes {
		table := newTable(t, sampleConfig(), nft.IPv4)
		endpoint := func(i int) *cluster.Endpoint {
			return tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+process, i))
		}
		table.SetService(svc)
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.1.1")) // it stays
		for i := range endpoints {
			tabletest.SetEndpoint(table, svc.Name, endpoint(i))
		}
		tabletest.Sync(t, table)
		for _, target := range committedPlan(table, svc.Name).Cluster {
			owner := target.AddrPort().String()
			if before, known := owners[target.ID]; known && before != owner {
				t.Errorf("%s: got id %d of %s, want another one", owner, target.ID, before)
			}
			owners[target.ID] = owner
		}
		for i := range endpoints {
			tabletest.DeleteEndpoint(table, svc.Name, endpoint(i).EndpointKey)
		}
		tabletest.Sync(t, table)
		checkTable(t, table, "reserved-ids")
	}
	if got, want := len(owners), processes*endpoints+1; got != want {
		t.Errorf("got %d ids, want %d", got, want)
	}
}

// When all reserved ids are used, the next ones are reserved.
func TestReserveMoreIDs(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	svc := tabletest.Service("sticky", "10.96.0.1", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	table.SetService(svc)
	for i := range 3 {
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.0.%d", i)))
		tabletest.Sync(t, table)
		rows := table.Stats().Rows["reserved-ids"]
		if reserved := table.ids.reserved; reserved < table.ids.next || rows != 1 {
			t.Errorf("got ids below %d in %d rows, want at least %d in 1 row", reserved, rows, table.ids.next)
		}
		checkTable(t, table)
		table.ids.next += idBlock
	}
}

// If a process cannot read the ids of an earlier one, it assigns new ids, and
// none that the earlier process can have assigned.
func TestUnreadableAffinity(t *testing.T) {
	tabletest.NewNamespace(t)
	newSample(t)
	fail := func() error { return nft.ErrGeneration }
	now := uint32(time.Now().Unix())
	for name, tt := range map[string]struct {
		faults  tabletest.Kernel
		firstID uint32
	}{
		"reserved ids": {tabletest.Kernel{OnRows: fail}, now},
		"chains":       {tabletest.Kernel{OnChains: fail}, idBlock},
		"rules":        {tabletest.Kernel{OnRules: fail}, idBlock},
	} {
		table := newTable(t, sampleConfig(), nft.IPv4)
		table.ids = newAffinityIDs(0)
		k := injectFaults(table)
		k.OnRows, k.OnChains, k.OnRules = tt.faults.OnRows, tt.faults.OnChains, tt.faults.OnRules
		table.ids.restore(k, table.rules, table.table())
		injectFaults(table)
		tabletest.PassSample(table)
		tabletest.Sync(t, table)
		checkTable(t, table)
		for _, target := range committedPlan(table, sticky).Cluster {
			if target.ID < tt.firstID {
				t.Errorf("%s: %s: got id %d, want at least %d", name, target.AddrPort(), target.ID, tt.firstID)
			}
		}
	}
}

// A namespace with 300 Services has few affinity sets, which other namespaces
// do not have. So its clients take affinity from no other namespace, also after
// a restart.
func TestAffinitySetsOfNamespaces(t *testing.T) {
	tabletest.NewNamespace(t)
	for restart := range 2 {
		table := newTable(t, sampleConfig(), nft.IPv4)
		add := func(namespace string, i int) cluster.ServiceName {
			svc := tabletest.Service(fmt.Sprint("sticky-", i), fmt.Sprintf("10.96.%d.%d", i/200, 1+i%200), nil)
			svc.Name.Namespace, svc.AffinityTimeout = namespace, time.Hour
			table.SetService(svc)
			tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.1.1"))
			return svc.Name
		}
		var tenant []cluster.ServiceName
		for i := range 300 {
			tenant = append(tenant, add("tenant", i))
		}
		if restart == 0 {
			tabletest.Sync(t, table)
		}
		other := add("other", 300)
		tabletest.Sync(t, table)
		sets := make(map[string]bool)
		for _, name := range tenant {
			sets[affinitySetOf(table, name)] = true
		}
		if len(sets) > 7 || sets[affinitySetOf(table, other)] {
			t.Errorf("restart %d: a namespace has %d affinity sets: %v; the Service of another one has %s",
				restart, len(sets), slices.Sorted(maps.Keys(sets)), affinitySetOf(table, other))
		}
	}
}
