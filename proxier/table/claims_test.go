package table

import (
	"fmt"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// wantOwner syncs and compares the Service that has port 80 of an address in
// the kernel.
func wantOwner(t *testing.T, table *Table, ip, service string) {
	t.Helper()
	tabletest.Sync(t, table)
	checkTable(t, table)
	rows := tabletest.NFT(t, "", "list", "map", "ip", ruleset.TableName, "service-classes")
	// Without /etc/protocols, nft prints the protocol as a number.
	owner := regexp.QuoteMeta(ip) + ` \. (tcp|6) \. 80 comment "ns/` + service + `:http"`
	if !regexp.MustCompile(owner).MatchString(rows) {
		t.Errorf("got another owner of %s:80, want ns/%s:\n%s", ip, service, rows)
	}
}

// If two Services have the same address and port, the older one owns it until
// it is deleted.
func TestOldestServiceOwnsFrontend(t *testing.T) {
	tabletest.NewNamespace(t)
	config, recorded := recordEvents()
	table := newTable(t, config, nft.IPv4)
	const contested = "192.0.2.1"
	service := func(name, clusterIP string, created int64) *cluster.Service {
		return tabletest.Service(name, clusterIP, func(s *cluster.Service) {
			s.Created = time.Unix(created, 0)
			s.ExternalIPs = []netip.Addr{addr(contested)}
		})
	}
	table.SetService(service("younger", "10.96.0.1", 200))
	younger := cluster.ServiceName{Namespace: "ns", Name: "younger"}
	older := cluster.ServiceName{Namespace: "ns", Name: "older"}
	tabletest.SetEndpoint(table, younger, tabletest.Endpoint("10.244.0.1"))
	tabletest.SetEndpoint(table, older, tabletest.Endpoint("10.244.0.2"))
	wantOwner(t, table, contested, "younger")
	table.SetService(service("older", "10.96.0.2", 100))
	wantOwner(t, table, contested, "older")
	table.SetService(service("younger", "10.96.0.1", 200)) // not another event
	wantOwner(t, table, contested, "older")
	table.DeleteService(older)
	wantOwner(t, table, contested, "younger")
	table.SetService(service("older", "10.96.0.2", 300)) // created again, so it is younger now
	wantOwner(t, table, contested, "younger")
	got, want := recorded.Of(cluster.ReasonAddressConflict), []string{"ns/younger", "ns/older"}
	if !slices.Equal(got, want) {
		t.Errorf("events: got %q, want %q", got, want)
	}
}

// A ClusterIP has priority over a LoadBalancer IP, and that over an external
// IP, independent of the age of the Services. Otherwise an older Service
// could take the ClusterIP of another one.
func TestPriorityOfAddressKinds(t *testing.T) {
	tabletest.NewNamespace(t)
	config, recorded := recordEvents()
	table := newTable(t, config, nft.IPv4)
	const contested = "10.96.0.1"
	set := func(name string, created int64, change func(*cluster.Service)) {
		svc := tabletest.Service(name, "", change)
		svc.Created = time.Unix(created, 0)
		table.SetService(svc)
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.0.1"))
	}
	external := func(s *cluster.Service) { s.ExternalIPs = []netip.Addr{addr(contested)} }
	loadBalancer := func(s *cluster.Service) { s.LoadBalancerIPs = []netip.Addr{addr(contested)} }
	clusterIP := func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr(contested)} }
	set("external", 100, external)
	wantOwner(t, table, contested, "external")
	set("lb", 200, loadBalancer)
	wantOwner(t, table, contested, "lb")
	set("cluster", 300, clusterIP)
	wantOwner(t, table, contested, "cluster")
	set("older-external", 50, external)
	wantOwner(t, table, contested, "cluster")
	table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "cluster"})
	wantOwner(t, table, contested, "lb")
	set("lb", 200, external) // the same frontend, with a lower priority
	wantOwner(t, table, contested, "older-external")
	set("lb", 200, loadBalancer)
	wantOwner(t, table, contested, "lb")
	got := recorded.Of(cluster.ReasonAddressConflict)
	want := []string{"ns/external", "ns/lb", "ns/older-external", "ns/lb", "ns/older-external"}
	if !slices.Equal(got, want) {
		t.Errorf("events: got %q, want %q", got, want)
	}
}

// A Service that loses many frontends to another one causes one event, which
// names the number and an example, and another one when it loses more.
func TestManyConflicts(t *testing.T) {
	config, recorded := recordEvents()
	table := newUnconnected(t, config, nft.IPv4)
	set := func(name string, created int64, ips, ports int) {
		table.SetService(tabletest.Service(name, "", func(s *cluster.Service) {
			s.Created, s.Ports = time.Unix(created, 0), nil
			for i := range ips {
				s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}))
			}
			for i := range ports {
				p := cluster.ServicePort{Name: fmt.Sprint("p", i), Protocol: cluster.TCP, Port: uint16(i + 1)}
				s.Ports = append(s.Ports, p)
			}
		}))
		table.prepare()
	}
	set("young", 2, 2000, 20)
	set("old", 1, 2000, 20)
	set("young", 2, 2000, 19)
	set("young", 2, 2000, 20)
	set("young", 2, 2000, 21) // no other service port has port 21
	set("old", 1, 2000, 21)
	var notes []string
	for _, e := range *recorded {
		notes = append(notes, e.Namespace+"/"+e.Name+": "+e.Note)
	}
	const note = "ns/young: Service port ns/young:p0 gets no traffic on 192.0.0.0:1/tcp: it belongs to ns/old:p0"
	want := []string{
		note + " (40000 frontends of the Service in all)", note + " (40000 frontends of the Service in all)",
		note + " (42000 frontends of the Service in all)",
	}
	if !slices.Equal(notes, want) {
		t.Errorf("got events\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
}

// All calls between two syncs are one change: frontends that move between
// Services or service ports do not cause conflicts. A conflict that exists in
// both families causes one event.
func TestConflictsOfOneSync(t *testing.T) {
	tabletest.NewNamespace(t)
	config, recorded := recordEvents()
	tables, err := New(config, nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	sink := cluster.Sinks{tables[0], tables[1]}
	if err := sink.Setup(); err != nil {
		t.Fatal(err)
	}
	service := func(name string, ports ...cluster.ServicePort) *cluster.Service {
		return tabletest.Service(name, "10.96.0.1", func(s *cluster.Service) {
			s.Families, s.Ports = []nft.Family{nft.IPv4, nft.IPv6}, ports
		})
	}
	port := func(name string, port, nodePort uint16) cluster.ServicePort {
		return cluster.ServicePort{Name: name, Protocol: cluster.TCP, Port: port, NodePort: nodePort}
	}
	a, b := port("a", 80, 30001), port("b", 81, 30002)
	step := func(name string, events int) {
		t.Helper()
		tabletest.Sync(t, sink)
		if len(*recorded) != events {
			t.Errorf("%s: got %d events, want %d: %v", name, len(*recorded), events, *recorded)
		}
	}
	sink.SetService(service("before", a, b))
	step("one Service", 0)
	sink.SetService(service("after", a, b))
	sink.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "before"})
	step("another Service replaces it", 0)
	a.NodePort, b.NodePort = b.NodePort, a.NodePort
	sink.SetService(service("after", a, b))
	step("two ports exchange their NodePorts", 0)
	other := service("other", port("c", 90, 30001))
	other.ClusterIPs = nil
	sink.SetService(other)
	step("a NodePort that another Service has", 1)
	sink.SetService(other)
	step("the same Service again", 1)
}

// The memory of many frontends is released with them.
func TestClaimsReleaseMemory(t *testing.T) {
	c := newClaims(nil)
	p := &portState{service: &serviceState{}}
	mark := func(*serviceState) {}
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	frontend := func(i int) ruleset.Frontend {
		return ruleset.Frontend{
			Addr: netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}), Port: 80, Proto: cluster.TCP,
		}
	}
	const many, kept, most = 200_000, 100, 1 << 20
	before := heap()
	for i := range many {
		c.add(frontend(i), claim{port: p}, mark)
	}
	for i := kept; i < many; i++ {
		c.release(frontend(i), p, mark)
	}
	if after := heap(); after > before+most {
		t.Errorf("%d bytes are left", after-before)
	}
	for i := range many {
		if got := c.owner(frontend(i)); (got == p) != (i < kept) {
			t.Fatalf("frontend %d: got owner %v", i, got)
		}
	}
}
