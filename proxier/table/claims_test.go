package table

import (
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// Of two services that want the same address and port the older one has it, until it goes.
func TestConflict(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
	table := newTable(t, config, nft.IPv4)
	want := func(owner string) {
		t.Helper()
		tabletest.Sync(t, table)
		checkTable(t, table)
		out := tabletest.NFT(t, "", "list", "map", "ip", ruleset.TableName, "service-ips")
		// Without /etc/protocols nft prints the protocol as a number.
		if !regexp.MustCompile(`192\.0\.2\.1 \. (tcp|6) \. 80 comment "ns/` + owner + `:http"`).MatchString(out) {
			t.Errorf("want %s to have 192.0.2.1:80:\n%s", owner, out)
		}
	}
	contender := func(name, clusterIP string, created int64) *cluster.Service {
		return tabletest.Service(name, clusterIP, func(s *cluster.Service) {
			s.Created = time.Unix(created, 0)
			s.ExternalIPs = []netip.Addr{addr("192.0.2.1")}
		})
	}
	table.SetService(contender("younger", "10.96.0.1", 200))
	table.SetEndpoint(cluster.ServiceName{Namespace: "ns", Name: "younger"}, tabletest.Endpoint("10.244.0.1"))
	table.SetEndpoint(cluster.ServiceName{Namespace: "ns", Name: "older"}, tabletest.Endpoint("10.244.0.2"))
	want("younger")
	table.SetService(contender("older", "10.96.0.2", 100))
	want("older")
	table.SetService(contender("younger", "10.96.0.1", 200)) // tells no one again
	want("older")
	table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "older"})
	want("younger")
	table.SetService(contender("older", "10.96.0.2", 300)) // a new Service of the old name
	want("younger")
	if got, want := recorded.Of(cluster.ReasonAddressConflict), []string{"ns/younger", "ns/older"}; !slices.Equal(got, want) {
		t.Errorf("events about %q, want %q", got, want)
	}
}

// A ClusterIP beats a LoadBalancer IP, which beats an external IP, whatever the age
// of the Services. An older Service must not take over the ClusterIP of another.
func TestConflictOfKinds(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
	table := newTable(t, config, nft.IPv4)
	const contested = "10.96.0.1"
	service := func(name string, created int64, change func(*cluster.Service)) {
		svc := tabletest.Service(name, "", nil)
		svc.Created = time.Unix(created, 0)
		change(svc)
		table.SetService(svc)
		table.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	}
	want := func(owner string) {
		t.Helper()
		tabletest.Sync(t, table)
		checkTable(t, table)
		out := tabletest.NFT(t, "", "list", "map", "ip", ruleset.TableName, "service-ips")
		if !regexp.MustCompile(`10\.96\.0\.1 \. (tcp|6) \. 80 comment "ns/` + owner + `:http"`).MatchString(out) {
			t.Errorf("want %s to have %s:80:\n%s", owner, contested, out)
		}
	}
	external := func(s *cluster.Service) { s.ExternalIPs = []netip.Addr{addr(contested)} }
	loadBalancer := func(s *cluster.Service) { s.LoadBalancerIPs = []netip.Addr{addr(contested)} }
	clusterIP := func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr(contested)} }
	service("external", 100, external)
	want("external")
	service("lb", 200, loadBalancer)
	want("lb")
	service("cluster", 300, clusterIP)
	want("cluster")
	service("older-external", 50, external)
	want("cluster")
	table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "cluster"})
	want("lb")
	service("lb", 200, external) // the same frontend, with a weaker claim
	want("older-external")
	service("lb", 200, loadBalancer)
	want("lb")
	got := recorded.Of(cluster.ReasonAddressConflict)
	if want := []string{"ns/external", "ns/lb", "ns/older-external", "ns/lb", "ns/older-external"}; !slices.Equal(got, want) {
		t.Errorf("events about %q, want %q", got, want)
	}
}

// What is told one after the other is one change: there is no conflict between what was and what will be. A conflict of both families is
// told once.
func TestConflictsOfOneChange(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
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
	step := func(what string, events int) {
		t.Helper()
		tabletest.Sync(t, sink)
		if len(recorded) != events {
			t.Errorf("%s: %d events, want %d: %v", what, len(recorded), events, recorded)
		}
	}
	sink.SetService(service("before", a, b))
	step("one service", 0)
	sink.SetService(service("after", a, b))
	sink.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "before"})
	step("renamed", 0)
	a.NodePort, b.NodePort = b.NodePort, a.NodePort
	sink.SetService(service("after", a, b))
	step("NodePorts swapped", 0)
	other := service("other", port("c", 90, 30001))
	other.ClusterIPs = nil
	sink.SetService(other)
	step("NodePort of another", 1)
	sink.SetService(other)
	step("again", 1)
}
