package table

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// On an address of this node, the NodePorts of all Services and the ports of
// the proxy have priority over external IPs and LoadBalancer IPs, whatever the
// age of the Services and the order of changes.
func TestNodePortsBeforeExternalIPs(t *testing.T) {
	config, recorded := recordEvents()
	config.Rules.NodePortAddresses = ruleset.NodePortAddresses{}
	for _, own := range []string{"0.0.0.0:10256", "127.0.0.1:10249"} {
		config.OwnPorts = append(config.OwnPorts, netip.MustParseAddrPort(own))
	}
	table := newUnconnected(t, config, nft.IPv4)
	const primary, second, elsewhere = "172.30.0.11", "172.30.0.12", "192.0.2.1"
	node := func(local ...string) {
		n := tabletest.Node()
		n.LocalIPs = tabletest.Addrs(local...)
		table.SetNode(n)
	}
	owned := func(when string, want ...string) {
		t.Helper()
		table.prepare()
		var got []string
		s := table.desired.services[cluster.ServiceName{Namespace: "ns", Name: "external"}]
		for _, p := range s.ports {
			for _, f := range table.desired.owned(p) {
				got = append(got, f.Frontend.String())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got frontends %q, want %q", when, got, want)
		}
	}
	set := func(name string, created int64, change func(*cluster.Service)) {
		svc := tabletest.Service(name, "", change)
		svc.Created = time.Unix(created, 0)
		table.SetService(svc)
	}
	set("external", 1, func(s *cluster.Service) {
		s.ExternalIPs = tabletest.Addrs(primary, second, elsewhere)
		s.Ports = nil
		for _, port := range []uint16{10249, 10256, 30080, 32000} {
			s.Ports = append(s.Ports, cluster.ServicePort{Name: fmt.Sprint(port), Protocol: cluster.TCP, Port: port})
		}
	})
	at := func(port string, ips ...string) (all []string) {
		for _, ip := range ips {
			all = append(all, ip+":"+port+"/tcp")
		}
		return all
	}
	own, free := at("10256", elsewhere), at("10249", primary, second, elsewhere)
	node(primary, second)
	owned("no NodePorts", slices.Concat(free, own, at("30080", primary, second, elsewhere),
		at("32000", primary, second, elsewhere))...)
	set("younger", 2, func(s *cluster.Service) { s.Ports[0].NodePort, s.HealthCheckNodePort = 30080, 32000 })
	// NodePorts listen on the primary address only.
	owned("NodePorts", slices.Concat(free, own, at("30080", second, elsewhere), at("32000", second, elsewhere))...)
	if got := table.desired.claims.contested(); got != 4 {
		t.Errorf("got %d contested frontends, want 4", got)
	}
	if got := len(table.Stats().WaitingPorts); got != 4 {
		t.Errorf("got %d waiting service ports, want 4", got)
	}
	table.desired.dirty = make(map[*serviceState]struct{})
	table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "younger"})
	if len(table.desired.dirty) != 2 {
		t.Errorf("deleted NodePorts: got %d dirty Services, want 2", len(table.desired.dirty))
	}
	owned("deleted NodePorts", slices.Concat(free, own, at("30080", primary, second, elsewhere),
		at("32000", primary, second, elsewhere))...)
	table.desired.dirty = make(map[*serviceState]struct{})
	node(primary)
	if len(table.desired.dirty) != 1 {
		t.Errorf("lost an address: got %d dirty Services, want 1", len(table.desired.dirty))
	}
	owned("lost an address", slices.Concat(free, at("10256", second, elsewhere),
		at("30080", primary, second, elsewhere), at("32000", primary, second, elsewhere))...)
	if got := len(recorded.Of(cluster.ReasonAddressConflict)); got != 2 {
		t.Errorf("got %d events, want 2: %+v", got, *recorded)
	}
	table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "external"})
	table.prepare()
	if c := &table.desired.claims; len(c.owners)+len(c.waiting)+len(c.node.claimed)+len(c.reported) != 0 {
		t.Errorf("got claims %+v after all Services were deleted, want none", c)
	}
}
