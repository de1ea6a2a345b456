package table

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// heavyService returns a Service with heavy ports, whose targets are endpoints
// of passHeavy.
func heavyService(name, clusterIP string, ports int, change func(*cluster.Service)) *cluster.Service {
	return tabletest.Service(name, clusterIP, func(svc *cluster.Service) {
		svc.Ports = nil
		for i := range ports {
			svc.Ports = append(svc.Ports, cluster.ServicePort{
				Name: fmt.Sprintf("p%02d", i), Protocol: cluster.TCP, Port: uint16(1000 + i),
			})
		}
		if change != nil {
			change(svc)
		}
	})
}

// passHeavy passes n endpoints of a heavy Service.
func passHeavy(table *Table, svc *cluster.Service, n int) {
	var all []*cluster.Endpoint
	for i := range n {
		e := tabletest.NumberedEndpoint(0, i)
		e.Ports = nil
		for _, p := range svc.Ports {
			e.Ports = append(e.Ports, cluster.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
		all = append(all, e)
	}
	table.SetEndpoints(svc.Name, "slice", all)
}

// recordTurns records the service ports of the turns of updates that are
// committed.
type recordTurns struct{ turns [][]string }

func (r *recordTurns) Committed(c *Commit) {
	var names []string
	for _, change := range c.Changes {
		if change.After != nil {
			names = append(names, change.After.Name())
		} else if change.Before != nil {
			names = append(names, change.Before.Name())
		}
	}
	r.turns = append(r.turns, names)
}

func (r *recordTurns) Synced(SyncResult) {}

// newTurns returns a Table after its first sync whose service ports are heavy
// from 200 rows on, and which makes one heavy turn in each sync.
func newTurns(t *testing.T) (*Table, *recordTurns) {
	tabletest.NewNamespace(t)
	turns := new(recordTurns)
	config := sampleConfig()
	config.Observer = turns
	table := newTable(t, config, nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	table.limits = limits{turnCost: 400, heavyCost: 200, time: -1, burst: time.Hour}
	turns.turns = nil
	return table, turns
}

// finish syncs once without a limit for heavy turns.
func finish(t *testing.T, table *Table) {
	t.Helper()
	table.limits.time = time.Hour
	tabletest.Sync(t, table)
}

// A large change of one Service does not delay others: light service ports are
// written first, and each heavy one has a transaction of its own.
func TestTurns(t *testing.T) {
	for name, change := range map[string]func(*cluster.Service){
		"session affinity": func(svc *cluster.Service) { svc.AffinityTimeout = time.Hour },
		"external IPs": func(svc *cluster.Service) {
			for i := range byte(100) {
				svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{192, 0, 2, i}))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, turns := newTurns(t)
			heavy := heavyService("heavy", "10.96.1.1", 3, change)
			table.SetService(heavy)
			passHeavy(table, heavy, 60)
			table.SetService(tabletest.Service("light", "10.96.1.2", nil))
			tabletest.Sync(t, table)
			first := [][]string{{"ns/light:http"}, {"ns/heavy:p00"}}
			if !slices.EqualFunc(turns.turns, first, slices.Equal) {
				t.Errorf("first sync: got turns %q, want %q", turns.turns, first)
			}
			if !table.UpToDate() || !table.Deferred() {
				t.Errorf("first sync: got up to date %v, deferred %v; want both", table.UpToDate(), table.Deferred())
			}
			turns.turns = nil
			finish(t, table)
			want := [][]string{nil, {"ns/heavy:p01"}, {"ns/heavy:p02"}}
			if !slices.EqualFunc(turns.turns, want, slices.Equal) {
				t.Errorf("got turns %q, want %q", turns.turns, want)
			}
			checkTable(t, table)
			if !table.UpToDate() || len(table.desired.dirty) != 0 {
				t.Errorf("got up to date %v and %d changed Services, want true and none",
					table.UpToDate(), len(table.desired.dirty))
			}

			table.DeleteService(heavy.Name)
			finish(t, table)
			checkTable(t, table)
			if n := len(table.desired.ports); n != len(table.committed.plans) {
				t.Errorf("got %d service ports, want %d", n, len(table.committed.plans))
			}
		})
	}
}

// A frontend moves from one heavy service port to another in one transaction,
// also if its Services have to wait.
func TestMoveBetweenTurns(t *testing.T) {
	table, turns := newTurns(t)
	external := func(svc *cluster.Service) { svc.ExternalIPs = []netip.Addr{addr("192.0.2.77")} }
	first := heavyService("first", "10.96.1.1", 2, external)
	second := heavyService("second", "10.96.1.2", 2, nil)
	for _, svc := range []*cluster.Service{first, second} {
		table.SetService(svc)
		passHeavy(table, svc, 200)
	}
	finish(t, table)
	checkTable(t, table)
	turns.turns = nil
	table.SetService(heavyService("first", "10.96.1.1", 2, nil))
	table.SetService(heavyService("second", "10.96.1.2", 2, external))
	for _, s := range table.desired.services {
		s.pace = pace{debt: 2 * table.limits.burst, at: time.Now()}
	}
	finish(t, table)
	checkTable(t, table)
	want := [][]string{nil, {"ns/first:p00", "ns/second:p00"}, {"ns/first:p01", "ns/second:p01"}}
	if !slices.EqualFunc(turns.turns, want, slices.Equal) {
		t.Errorf("got turns %q, want %q", turns.turns, want)
	}
}

// Many light service ports are written by several transactions.
func TestLightTurns(t *testing.T) {
	table, turns := newTurns(t)
	for i := range 300 {
		table.SetService(tabletest.NumberedService(1000 + i))
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
	var sizes []int
	for _, ports := range turns.turns {
		sizes = append(sizes, len(ports))
	}
	if want := []int{100, 100, 100}; !slices.Equal(sizes, want) { // a frontend costs 4
		t.Errorf("got turns with %d service ports, want %d", sizes, want)
	}
}

// A Service whose heavy turns took long waits, and others do not.
func TestPace(t *testing.T) {
	table, turns := newTurns(t)
	table.limits.time = time.Hour
	heavy := heavyService("heavy", "10.96.1.1", 1, func(svc *cluster.Service) { svc.AffinityTimeout = time.Hour })
	table.SetService(heavy)
	passHeavy(table, heavy, 60)
	tabletest.Sync(t, table)
	s := table.desired.services[heavy.Name]
	if s.pace.debt == 0 {
		t.Fatal("a heavy turn: got no debt")
	}
	s.pace = pace{debt: 2 * table.limits.burst, at: time.Now()}
	turns.turns = nil
	passHeavy(table, heavy, 59)
	table.SetService(tabletest.Service("light", "10.96.1.2", nil))
	tabletest.Sync(t, table)
	if want := [][]string{{"ns/light:http"}}; !slices.EqualFunc(turns.turns, want, slices.Equal) {
		t.Errorf("got turns %q, want %q", turns.turns, want)
	}
	if table.Deferred() {
		t.Error("the Service must wait: got deferred, want not")
	}
	s.pace.at = s.pace.at.Add(-paceShare * table.limits.burst)
	if !table.Deferred() {
		t.Error("the Service has waited: got not deferred")
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
}
