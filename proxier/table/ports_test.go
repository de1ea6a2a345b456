package table

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The time for the addresses and the ports of a Service is linear: in quadratic
// time, this test takes more than ten minutes.
func TestHugeServices(t *testing.T) {
	t.Parallel()
	const huge = 300_000
	table := newUnconnected(t, sampleConfig(), nft.IPv4)
	plan := func() {
		table.prepare()
		for s := range table.desired.dirty {
			for _, p := range s.ports {
				if _, err := table.preview(p, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	ips := make([]netip.Addr, huge)
	for i := range ips {
		ips[i] = netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)})
	}
	svc := tabletest.Service("addresses", "10.96.0.1", func(s *cluster.Service) { s.ExternalIPs = ips })
	table.SetService(svc)
	plan()
	changed := *svc
	changed.ExternalIPs = slices.Clone(ips)
	slices.Reverse(changed.ExternalIPs)
	table.SetService(&changed)
	plan()
	table.DeleteService(svc.Name)
	delete(table.desired.dirty, table.desired.services[svc.Name])

	const manyPorts = 60_000
	svc = tabletest.Service("ports", "10.96.0.2", func(s *cluster.Service) { s.Ports = nil })
	endpoint := tabletest.Endpoint("10.244.0.1")
	endpoint.Ports = nil
	for i := range manyPorts {
		p := cluster.ServicePort{Name: fmt.Sprintf("a-service-port-%d", i), Protocol: cluster.TCP, Port: uint16(i + 1)}
		svc.Ports = append(svc.Ports, p)
		endpoint.Ports = append(endpoint.Ports, cluster.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	slices.SortFunc(endpoint.Ports, cluster.EndpointPort.Compare)
	table.SetService(svc)
	tabletest.SetEndpoint(table, svc.Name, endpoint)
	plan()
	before := slices.Clone(table.desired.services[svc.Name].ports)
	reversed := *svc
	reversed.Ports = slices.Clone(svc.Ports)
	slices.Reverse(reversed.Ports)
	table.SetService(&reversed)
	plan()
	slices.Reverse(before)
	if !slices.Equal(before, table.desired.services[svc.Name].ports) {
		t.Error("got new service ports, want none")
	}
	if p := table.desired.services[svc.Name].ports[0]; p.port != reversed.Ports[0] {
		t.Errorf("first port: got %+v, want %+v", p.port, reversed.Ports[0])
	}
}
