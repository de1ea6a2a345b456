package table

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
// from 200 rows on, and which makes one heavy part in each sync.
func newParts(t *testing.T) (*Table, *recordParts) {
	tabletest.NewNamespace(t)
	parts := new(recordParts)
	config := sampleConfig()
	config.Observer = parts
	table := newTable(t, config, nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	*table.config.Limits = keep.Limits{PartCost: 400, HeavyCost: 200, Time: -1, Burst: time.Hour}
	parts.parts = nil
	return table, parts
}

// finish syncs once without a limit for heavy parts.
func finish(t *testing.T, table *Table) {
	t.Helper()
	table.config.Limits.Time = time.Hour
	tabletest.Sync(t, table)
}

// A large change of one Service does not delay others: light service ports are
// written first, and each heavy one has a transaction of its own.
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
			table.SetService(tabletest.Service("light", "10.96.1.2", nil))
			tabletest.Sync(t, table)
			first := [][]string{{"ns/light:http"}, {"ns/heavy:p00"}}
			if !slices.EqualFunc(parts.parts, first, slices.Equal) {
				t.Errorf("first sync: got parts %q, want %q", parts.parts, first)
			}
			if !table.UpToDate() || !table.Deferred() {
				t.Errorf("first sync: got up to date %v, deferred %v; want both", table.UpToDate(), table.Deferred())
			}
			parts.parts = nil
			finish(t, table)
			want := [][]string{nil, {"ns/heavy:p01"}, {"ns/heavy:p02"}}
			if !slices.EqualFunc(parts.parts, want, slices.Equal) {
				t.Errorf("got parts %q, want %q", parts.parts, want)
			}
			checkTable(t, table)
			if !table.UpToDate() || len(table.desired.dirty) != 0 {
				t.Errorf("got up to date %v and %d changed Services, want true and none",
					table.UpToDate(), len(table.desired.dirty))
			}

			table.DeleteService(heavy.Name)
			finish(t, table)
			checkTable(t, table)
			if n := len(table.desired.ports); n != len(plans(table)) {
				t.Errorf("got %d service ports, want %d", n, len(plans(table)))
			}
		})
	}
}

// While an endpoint of ten heavy service ports comes and goes, each sync writes
// a change of another Service first, and then one of the ten, in turn.
func TestFlappingEndpoint(t *testing.T) {
	table, parts := newParts(t)
	const ports, endpoints, syncs = 10, 60, 30
	heavy := heavyService("heavy", "10.96.1.1", ports, func(svc *cluster.Service) { svc.AffinityTimeout = time.Hour })
	table.SetService(heavy)
	passHeavy(table, heavy, endpoints)
	finish(t, table)
	table.config.Limits.Time = -1
	written := make(map[string]int)
	for i := range syncs {
		parts.parts = nil
		passHeavy(table, heavy, endpoints-1+i%2)
		table.SetService(tabletest.Service("light", fmt.Sprintf("10.96.2.%d", i), nil))
		tabletest.Sync(t, table)
		if len(parts.parts) != 2 || !slices.Equal(parts.parts[0], []string{"ns/light:http"}) ||
			len(parts.parts[1]) != 1 {
			t.Fatalf("sync %d: got parts %q, want ns/light:http and one of the heavy ports", i, parts.parts)
		}
		written[parts.parts[1][0]]++
	}
	if len(written) != ports {
		t.Errorf("got changes of %d heavy ports in %d syncs, want %d: %v", len(written), syncs, ports, written)
	}
	finish(t, table)
	checkTable(t, table)
}

// A frontend moves from one heavy service port to another in one transaction,
// also if its Services have to wait.
func TestMoveBetweenParts(t *testing.T) {
	table, parts := newParts(t)
	external := func(svc *cluster.Service) { svc.ExternalIPs = []netip.Addr{addr("192.0.2.77")} }
	first := heavyService("first", "10.96.1.1", 2, external)
	second := heavyService("second", "10.96.1.2", 2, nil)
	for _, svc := range []*cluster.Service{first, second} {
		table.SetService(svc)
		passHeavy(table, svc, 200)
	}
	finish(t, table)
	checkTable(t, table)
	parts.parts = nil
	table.SetService(heavyService("first", "10.96.1.1", 2, nil))
	table.SetService(heavyService("second", "10.96.1.2", 2, external))
	for _, s := range table.desired.services {
		s.group.Charge(time.Now(), 2*table.config.Limits.Burst)
	}
	finish(t, table)
	checkTable(t, table)
	want := [][]string{nil, {"ns/first:p00", "ns/second:p00"}, {"ns/first:p01", "ns/second:p01"}}
	if !slices.EqualFunc(parts.parts, want, slices.Equal) {
		t.Errorf("got parts %q, want %q", parts.parts, want)
	}
}

// Many light service ports are written by several transactions.
func TestLightParts(t *testing.T) {
	table, parts := newParts(t)
	for i := range 300 {
		table.SetService(tabletest.NumberedService(1000 + i))
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
	var sizes []int
	for _, ports := range parts.parts {
		sizes = append(sizes, len(ports))
	}
	if want := []int{100, 100, 100}; !slices.Equal(sizes, want) { // a frontend costs 4
		t.Errorf("got parts with %d service ports, want %d", sizes, want)
	}
}

// A Service whose heavy parts took long waits, and others do not.
func TestPace(t *testing.T) {
	table, parts := newParts(t)
	table.config.Limits.Time = time.Hour
	heavy := heavyService("heavy", "10.96.1.1", 1, func(svc *cluster.Service) { svc.AffinityTimeout = time.Hour })
	table.SetService(heavy)
	passHeavy(table, heavy, 60)
	tabletest.Sync(t, table)
	s := table.desired.services[heavy.Name]
	if s.group == (keep.Group{}) {
		t.Fatal("a heavy part: got no debt")
	}
	s.group.Charge(time.Now(), 2*table.config.Limits.Burst)
	parts.parts = nil
	passHeavy(table, heavy, 59)
	table.SetService(tabletest.Service("light", "10.96.1.2", nil))
	tabletest.Sync(t, table)
	if want := [][]string{{"ns/light:http"}}; !slices.EqualFunc(parts.parts, want, slices.Equal) {
		t.Errorf("got parts %q, want %q", parts.parts, want)
	}
	if table.Deferred() {
		t.Error("the Service must wait: got deferred, want not")
	}
	s.invalidEndpoints = "not read again"
	tabletest.Sync(t, table)
	if s.invalidEndpoints == "" {
		t.Error("a sync reads the endpoints of a deferred Service again")
	}
	s.group = keep.Group{}
	if !table.Deferred() {
		t.Error("the Service has waited: got not deferred")
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// failHeavy makes commits fail that write the wanted plan of the only port of a
// heavy Service.
func failHeavy(table *Table, name cluster.ServiceName, err error) *portState {
	port := table.desired.services[name].ports[0]
	injectFaults(table).OnCommit = func(_ *nft.Batch, commit func() error) error {
		if port.kept.Pending() && !writesLess(port) {
			return err
		}
		return commit()
	}
	return port
}

// A heavy service port fails with an error that names no service port. Others
// are written, heavy ones too, and it is refused at last.
func TestHeavyPartFails(t *testing.T) {
	table, _ := newParts(t)
	table.config.Limits.Time = time.Hour
	affinity := func(svc *cluster.Service) { svc.AffinityTimeout = time.Hour }
	names := []string{"first", "second"}
	for i, name := range names {
		heavy := heavyService(name, fmt.Sprintf("10.96.1.%d", i), 1, affinity)
		table.SetService(heavy)
		passHeavy(table, heavy, 60)
	}
	port := failHeavy(table, tabletest.Service(names[0], "", nil).Name, fmt.Errorf("send: %w", unix.ENOBUFS))
	for i := range 3 + 1 {
		err := table.Sync()
		if last := i == 3; (err == nil) != last {
			t.Errorf("sync %d: got %v", i, err)
		}
		if p := committedPlan(table, tabletest.Service(names[1], "", nil).Name); p == nil || len(p.Cluster) != 60 {
			t.Fatalf("sync %d: the second Service was not written", i)
		}
	}
	if _, refused := port.kept.Refused(); !refused || !table.UpToDate() {
		t.Errorf("got refusals %v, up to date: %v", refusedNames(table), table.UpToDate())
	}
	checkTable(t, table)
}

// A heavy service port that is held back, and whose Service took long, does not
// make syncs fail before its turn.
func TestHeldBackPortWaits(t *testing.T) {
	table, _ := newParts(t)
	heavy := heavyService("heavy", "10.96.1.1", 1, func(svc *cluster.Service) { svc.AffinityTimeout = time.Hour })
	table.SetService(heavy)
	passHeavy(table, heavy, 60)
	s := table.desired.services[heavy.Name]
	failHeavy(table, heavy.Name, problem(unix.ENOMEM, s.ports[0].tag))
	if err := table.Sync(); err == nil {
		t.Error("first failure: got no error")
	}
	s.group.Charge(time.Now(), 2*table.config.Limits.Burst)
	tabletest.Sync(t, table)
	if table.Deferred() {
		t.Error("the Service must wait: got deferred, want not")
	}
	s.group = keep.Group{}
	if !table.Deferred() {
		t.Error("the Service has waited: got not deferred")
	}
	if err := table.Sync(); err == nil {
		t.Error("its turn: got no error")
	}
}
