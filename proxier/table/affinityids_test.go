package table

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
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
		p.Cluster = append(p.Cluster, ruleset.Target{AddrPort: netip.MustParseAddrPort(e)})
	}
	return p
}

// An endpoint that is away for a moment keeps its clients; one that comes back later does not.
func TestIDsOfAbsentEndpoints(t *testing.T) {
	ids := newAffinityIDs()
	both := affinityPlan("10.244.0.1:80", "10.244.0.2:80")
	ids.assign(&ruleset.Plan{}, both)
	first := both.Cluster[0].ID
	replace := func(before, next *ruleset.Plan) *ruleset.Plan {
		ids.beginPlanning()
		ids.assign(before, next)
		ids.committed()
		ids.release(before, next)
		return next
	}

	one := replace(both, affinityPlan("10.244.0.2:80"))
	back := replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := back.Cluster[0].ID; got != first {
		t.Errorf("back after a moment, the endpoint has id %d, had %d", got, first)
	}

	one = replace(back, affinityPlan("10.244.0.2:80"))
	for e, was := range ids.absent {
		was.until = time.Now().Add(-time.Second)
		ids.absent[e] = was
	}
	late := replace(one, affinityPlan("10.244.0.1:80", "10.244.0.2:80"))
	if got := late.Cluster[0].ID; got == first {
		t.Errorf("back after a long time, the endpoint has the same id %d", got)
	}
	if late.Cluster[1].ID != both.Cluster[1].ID {
		t.Errorf("the endpoint that stayed has id %d, had %d", late.Cluster[1].ID, both.Cluster[1].ID)
	}

	for e, was := range ids.absent {
		was.until = time.Now().Add(-time.Second)
		ids.absent[e] = was
	}
	if ids.beginPlanning(); len(ids.absent) != 0 {
		t.Errorf("the ids of %d endpoints are still kept", len(ids.absent))
	}
}

// affinitySetOf returns the name of the set of a Service's clients.
func affinitySetOf(table *Table, name cluster.ServiceName) string {
	return table.rules.AffinitySet(committedPlan(table, name)).Name
}

// A process that starts on the table of the one before keeps clients with their endpoints, and leaves the same table.
func TestRestart(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			tabletest.NewNamespace(t)
			first := newTable(t, sampleConfig(), f)
			tabletest.PassSample(first)
			tabletest.Sync(t, first)
			// Endpoints come and go, so that ids are not what a fresh table gives.
			sticky := cluster.ServiceName{Namespace: "default", Name: "sticky"}
			more := func(last string) *cluster.Endpoint {
				e := tabletest.Endpoint("10.244.1." + last)
				if f == nft.IPv6 {
					e.Addr = addr("fd00:244:1::" + last)
				}
				return e
			}
			first.SetEndpoint(sticky, more("1"))
			tabletest.Sync(t, first)
			first.DeleteEndpoint(sticky, more("1").EndpointKey)
			first.SetEndpoint(sticky, more("2"))
			tabletest.Sync(t, first)
			client := map[nft.Family]string{nft.IPv4: "198.51.100.7", nft.IPv6: "2001:db8:51::7"}[f]
			set := affinitySetOf(first, sticky)
			tabletest.NFT(t, "", "add", "element", f.String(), ruleset.TableName, set, "{ "+client+" . 4099 timeout 1h }")
			before := list(t, f)

			second := newTable(t, sampleConfig(), f)
			tabletest.PassSample(second)
			second.SetEndpoint(sticky, more("2"))
			tabletest.Sync(t, second)
			if after := list(t, f); !slices.Equal(ruleless(before), ruleless(after)) {
				t.Errorf("the table changed:\n%s", difference(ruleless(before), ruleless(after)))
			}
			// 4099 was the last id. Its endpoint goes, and its clients stay in the set over another restart.
			second.DeleteEndpoint(sticky, more("2").EndpointKey)
			tabletest.Sync(t, second)
			third := newTable(t, sampleConfig(), f)
			tabletest.PassSample(third)
			third.SetEndpoint(sticky, more("3"))
			tabletest.Sync(t, third)
			checkTableBut(t, third, set)
			for _, target := range committedPlan(third, sticky).Cluster {
				if old := target.ID == 4096 || target.ID == 4097; !old && target.ID < 2*idBlock {
					t.Errorf("%s got id %d, which was given before", target.AddrPort, target.ID)
				}
			}
		})
	}
}

// Neither a refusal, nor a failed commit, nor a Reset makes endpoints lose their ids, and so their clients.
func TestRestartWithTrouble(t *testing.T) {
	tabletest.NewNamespace(t)
	first := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(first)
	tabletest.Sync(t, first)
	ids := func(table *Table) []ruleset.Target {
		return committedPlan(table, cluster.ServiceName{Namespace: "default", Name: "sticky"}).Cluster
	}
	want := ids(first)

	second := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(second)
	bad := tabletest.Service(strings.Repeat("x", 300), "10.96.0.66", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	second.SetService(bad)
	second.SetEndpoint(bad.Name, tabletest.Endpoint("10.244.0.66"))
	if err := second.Fprint(io.Discard); err != nil {
		t.Fatal(err)
	}
	k := injectFaults(second)
	k.FailCommits()
	if err := second.Sync(); !errors.Is(err, tabletest.ErrCommit) {
		t.Fatal(err)
	}
	k.OnCommit = nil
	tabletest.Sync(t, second)
	if got := ids(second); !slices.Equal(got, want) {
		t.Errorf("after a restart: %v, want %v", got, want)
	}
	second.Reset()
	tabletest.PassSample(second)
	tabletest.Sync(t, second)
	if got := ids(second); !slices.Equal(got, want) {
		t.Errorf("after a Reset: %v, want %v", got, want)
	}
}

// The ids of endpoints that are gone are not given again by later processes, which
// find no trace of them in the rules.
func TestIDsAreNotGivenAgain(t *testing.T) {
	tabletest.NewNamespace(t)
	svc := tabletest.Service("sticky", "10.96.0.1", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	given := make(map[uint32]string)
	for process := range 4 {
		table := newTable(t, sampleConfig(), nft.IPv4)
		table.SetService(svc)
		table.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.1.1")) // which stays
		for i := range 20 {
			table.SetEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+process, i)))
		}
		tabletest.Sync(t, table)
		for _, target := range committedPlan(table, svc.Name).Cluster {
			who := target.AddrPort.String()
			if before, was := given[target.ID]; was && before != who {
				t.Errorf("id %d of %s was given to %s", target.ID, before, who)
			}
			given[target.ID] = who
		}
		for i := range 20 {
			table.DeleteEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+process, i)).EndpointKey)
		}
		tabletest.Sync(t, table)
		checkTableBut(t, table, "reserved-affinity-ids")
	}
	if len(given) != 4*20+1 {
		t.Errorf("%d ids were given, want 81", len(given))
	}
}

// More ids than are reserved at a time are reserved again.
func TestReserveMoreIDs(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	svc := tabletest.Service("sticky", "10.96.0.1", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	table.SetService(svc)
	for i := range 3 {
		table.SetEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprintf("10.244.0.%d", i)))
		tabletest.Sync(t, table)
		if table.committed.reservedIDs < table.ids.next || table.committed.rows["reserved-affinity-ids"] != 1 {
			t.Errorf("%d is reserved in %d rows, next is %d", table.committed.reservedIDs, table.committed.rows["reserved-affinity-ids"], table.ids.next)
		}
		checkTable(t, table)
		table.ids.next += idBlock
	}
}

// If the ids of an earlier process cannot be read, the proxy starts without them,
// and gives no id again.
func TestUnreadableAffinity(t *testing.T) {
	tabletest.NewNamespace(t)
	first := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(first)
	tabletest.Sync(t, first)
	unreadable := func(string) error { return nft.ErrGeneration }
	for name, faults := range map[string]tabletest.Kernel{
		"chains": {OnChains: func() error { return nft.ErrGeneration }},
		"rules":  {OnRules: unreadable},
	} {
		table := unconnected(t, sampleConfig(), nft.IPv4)
		faults.Conn = first.kernel.(*nft.Conn)
		table.kernel = &faults
		table.recoverAffinity()
		table.kernel = first.kernel
		tabletest.PassSample(table)
		tabletest.Sync(t, table)
		checkTable(t, table)
		for _, target := range committedPlan(table, cluster.ServiceName{Namespace: "default", Name: "sticky"}).Cluster {
			if target.ID < idBlock {
				t.Errorf("%s: %s has id %d, which was given before", name, target.AddrPort, target.ID)
			}
		}
	}
}
