package table

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// The time for the addresses and the ports of a Service is linear: in quadratic
// time, this test takes more than a minute.
func TestHugeServices(t *testing.T) {
	t.Parallel()
	const addresses, ports = 100_000, 20_000
	table := newUnconnected(t, sampleConfig())
	plan := func(svc *cluster.Service) []PortView {
		table.SetService(svc)
		_ = table.Sync() // prepares the plans, and fails
		view, _ := table.Service(svc.Name)
		return view.Ports
	}
	svc := tabletest.Service("addresses", "10.96.0.1", nil)
	for i := range addresses {
		svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	plan(svc)
	changed := *svc
	changed.ExternalIPs = slices.Clone(svc.ExternalIPs)
	slices.Reverse(changed.ExternalIPs)
	plan(&changed)
	table.DeleteService(svc.Name)

	svc, endpoint := tabletest.Service("ports", "10.96.0.2", nil), tabletest.Endpoint("10.244.0.1")
	svc.Ports, endpoint.Ports = tabletest.Ports(ports)
	tabletest.SetEndpoint(table, svc.Name, endpoint)
	before := plan(svc)
	reversed := *svc
	reversed.Ports = slices.Clone(svc.Ports)
	slices.Reverse(reversed.Ports)
	after := plan(&reversed)
	slices.Reverse(before)
	if !slices.EqualFunc(before, after, func(a, b PortView) bool { return a.Tag == b.Tag && a.Port == b.Port }) {
		t.Error("got new service ports, or another order, want the same ones")
	}
}
