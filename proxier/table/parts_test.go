package table

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
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

// recordParts records the service ports of the parts of updates that are
// committed.
type recordParts struct{ parts [][]string }

func (r *recordParts) Committed(c *Commit) {
	var names []string
	for _, change := range c.Changes {
		if change.After != nil {
			names = append(names, change.After.Name())
		} else if change.Before != nil {
			names = append(names, change.Before.Name())
		}
	}
	r.parts = append(r.parts, names)
}

func (r *recordParts) Synced(keep.SyncResult) {}

// newParts returns a Table after its first sync whose service ports are heavy
// from 200 rows on, and which makes one part in each sync.
func newParts(t *testing.T) (*Table, *recordParts) {
	tabletest.NewNamespace(t)
	parts := new(recordParts)
	config := sampleConfig()
	config.Observer = parts
	config.Limits = new(keep.DefaultLimits())
	table := newTable(t, config, nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	*table.config.Limits = keep.Limits{PartCost: 400, HeavyCost: 200, Time: -1, Burst: time.Hour}
	parts.parts = nil
	return table, parts
}

// syncParts syncs until nothing waits, and returns the parts.
func (r *recordParts) syncParts(t *testing.T, table *Table) (all [][]string) {
	t.Helper()
	for range 1000 {
		if err := table.Sync(); err != nil {
			t.Fatal(err)
		}
		all, r.parts = append(all, r.parts...), nil
		if _, waits := table.Next(); !waits {
			return all
		}
	}
	t.Fatal("changes wait after 1000 syncs")
	return nil
}

// A large change of one Service does not delay other namespaces: their changes
// are written first, and each heavy service port has a transaction of its own.
func TestParts(t *testing.T) {
	for name, change := range map[string]func(*cluster.Service){
		"session affinity": func(svc *cluster.Service) { svc.AffinityTimeout = time.Hour },
		"external IPs": func(svc *cluster.Service) {
			for i := range byte(100) {
				svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{192, 0, 2, i}))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, parts := newParts(t)
			heavy := heavyService("heavy", "10.96.1.1", 3, change)
			table.SetService(heavy)
			passHeavy(table, heavy, 60)
			if err := table.Sync(); err != nil {
				t.Fatal(err)
			}
			if _, waits := table.Next(); !waits || !table.UpToDate() {
				t.Errorf("first sync: got waits %v, up to date %v; want both", waits, table.UpToDate())
			}
			light := tabletest.NumberedService(1) // of another namespace
			table.SetService(light)
			got := parts.syncParts(t, table)
			want := [][]string{{"ns/heavy:p00"}, {"bench/service-1:http"}, {"ns/heavy:p01"}, {"ns/heavy:p02"}}
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("got parts %q, want %q", got, want)
			}
			checkTable(t, table)
			if _, waits := table.Next(); waits || len(table.desired.dirty) != 0 {
				t.Errorf("got waits %v and %d changed Services, want false and none", waits, len(table.desired.dirty))
			}
			table.DeleteService(heavy.Name)
			parts.syncParts(t, table)
			checkTable(t, table)
			if n := len(table.desired.ports); n != len(plans(table)) {
				t.Errorf("got %d service ports, want %d", n, len(plans(table)))
			}
		})
	}
}

// While an endpoint of ten heavy service ports comes and goes, syncs write them
// in turn, and changes of another namespace within two syncs.
func TestFlappingEndpoint(t *testing.T) {
	table, parts := newParts(t)
	const ports, endpoints, syncs = 10, 60, 30
	heavy := heavyService("heavy", "10.96.1.1", ports, func(svc *cluster.Service) { svc.AffinityTimeout = time.Hour })
	table.SetService(heavy)
	passHeavy(table, heavy, endpoints)
	parts.syncParts(t, table)
	written := make(map[string]int)
	late := 0
	for i := range syncs {
		passHeavy(table, heavy, endpoints-1+i%2)
		light := tabletest.NumberedService(1)
		light.ClusterIPs = tabletest.Addrs(fmt.Sprintf("10.96.2.%d", i))
		table.SetService(light)
		if err := errors.Join(table.Sync(), table.Sync()); err != nil {
			t.Fatal(err)
		}
		for _, part := range parts.parts {
			for _, name := range part {
				written[name]++
			}
		}
		parts.parts = nil
		if view, _ := table.Service(light.Name); view.Pending {
			late++
		}
	}
	if len(written) != ports+1 || late > 0 {
		t.Errorf("got changes of %d service ports in %d syncs, want %d: %v; %d late changes of others",
			len(written), syncs, ports+1, written, late)
	}
	parts.syncParts(t, table)
	checkTable(t, table)
}

// A frontend moves from one heavy service port to another in one transaction,
// also if their namespaces have to wait.
func TestMoveBetweenParts(t *testing.T) {
	table, parts := newParts(t)
	external := func(svc *cluster.Service) { svc.ExternalIPs = []netip.Addr{addr("192.0.2.77")} }
	first := heavyService("first", "10.96.1.1", 2, external)
	second := heavyService("second", "10.96.1.2", 2, nil)
	for _, svc := range []*cluster.Service{first, second} {
		table.SetService(svc)
		passHeavy(table, svc, 200)
	}
	parts.syncParts(t, table)
	checkTable(t, table)
	table.SetService(heavyService("first", "10.96.1.1", 2, nil))
	table.SetService(heavyService("second", "10.96.1.2", 2, external))
	got := parts.syncParts(t, table)
	checkTable(t, table)
	want := [][]string{{"ns/first:p00", "ns/second:p00"}, {"ns/first:p01", "ns/second:p01"}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got parts %q, want %q", got, want)
	}
}

// Many light service ports are written by several transactions.
func TestLightParts(t *testing.T) {
	table, parts := newParts(t)
	for i := range 300 {
		table.SetService(tabletest.NumberedService(1000 + i))
	}
	all := parts.syncParts(t, table)
	checkTable(t, table)
	var sizes []int
	for _, ports := range all {
		sizes = append(sizes, len(ports))
	}
	if want := []int{100, 100, 100}; !slices.Equal(sizes, want) { // a frontend costs 4
		t.Errorf("got parts with %d service ports, want %d", sizes, want)
	}
}

// A namespace whose changes took long waits, and others do not.
func TestNamespaceWithDebt(t *testing.T) {
	table, parts := newParts(t)
	table.config.Limits.Time = time.Hour
	heavy := heavyService("heavy", "10.96.1.1", 1, func(svc *cluster.Service) { svc.AffinityTimeout = time.Hour })
	table.SetService(heavy)
	passHeavy(table, heavy, 60)
	table.SetService(tabletest.NumberedService(1))
	parts.syncParts(t, table)
	table.config.Limits.Burst = -time.Hour // every namespace that was served has debt
	passHeavy(table, heavy, 59)
	if err := table.Sync(); err != nil {
		t.Fatal(err)
	}
	if wait, waits := table.Next(); !waits || wait == 0 || !table.UpToDate() {
		t.Errorf("got next sync in %v (%v), want later", wait, waits)
	}
	table.config.Limits.Burst = time.Hour
	if want := [][]string{{"ns/heavy:p00"}}; !slices.EqualFunc(parts.syncParts(t, table)[1:], want, slices.Equal) {
		t.Error("the namespace was not served after its debt")
	}
	checkTable(t, table)
}
