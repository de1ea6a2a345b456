package table

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// manyFrontends returns a Service with n external IPs, a LoadBalancer IP and a
// NodePort.
func manyFrontends(n int, change func(*cluster.Service)) *cluster.Service {
	return tabletest.Service("many", "10.96.0.1", func(svc *cluster.Service) {
		svc.Ports[0].NodePort = 30080
		svc.LoadBalancerIPs = []netip.Addr{addr("192.0.2.1")}
		for i := range n {
			svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}))
		}
		if change != nil {
			change(svc)
		}
	})
}

// passEndpoints passes n endpoints of a Service, half of them on this node.
func passEndpoints(table *Table, svc *cluster.Service, n int) {
	var all []*cluster.Endpoint
	for i := range n {
		e := tabletest.NumberedEndpoint(0, i)
		if i%2 == 0 {
			e.Node = "node1"
		}
		all = append(all, e)
	}
	table.SetEndpoints(svc.Name, "slice", all)
}

// A service port with many frontends and targets has a row for each frontend
// and each target, and not for each pair. A change of a target changes one row.
func TestManyFrontends(t *testing.T) {
	const frontends, targets = 100, 60
	for _, tt := range []struct {
		name   string
		change func(*cluster.Service)
		// dispatch is the number of rows of a Service that do not depend on
		// targets, endpoints the number of all others without
		// hairpin-connections.
		dispatch, endpoints int
	}{
		{"policy Cluster", nil, 2*(frontends+3) + 1, targets},
		{"externalTrafficPolicy Local", func(svc *cluster.Service) { svc.ExternalPolicy = cluster.PolicyLocal },
			3*(frontends+2) + 3, targets + targets/2},
		{"policies Local", func(svc *cluster.Service) {
			svc.ExternalPolicy, svc.InternalPolicy = cluster.PolicyLocal, cluster.PolicyLocal
		}, 3*(frontends+2) + 3, targets + targets/2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			table := newTable(t, sampleConfig(), nft.IPv4)
			svc := manyFrontends(frontends, tt.change)
			table.SetService(svc)
			passEndpoints(table, svc, targets)
			tabletest.Sync(t, table)
			checkTable(t, table)
			checkDiff(t, table)
			rows := -len(table.program.Rows)
			for _, n := range table.Stats().Rows {
				rows += n
			}
			if want := tt.dispatch + tt.endpoints + targets/2; rows != want {
				t.Errorf("got %d rows, want %d: %v", rows, want, table.Stats().Rows)
			}

			written := table.Stats().RowsWritten
			tabletest.SetEndpoint(table, svc.Name, tabletest.NumberedEndpoint(100, 0)) // on another node
			tabletest.Sync(t, table)
			checkTable(t, table)
			if n := table.Stats().RowsWritten - written; n != 1 {
				t.Errorf("an endpoint is added: got %d rows written, want 1", n)
			}

			// Below half of the limit, balancers serve the service port again.
			passEndpoints(table, svc, targets/6)
			tabletest.Sync(t, table)
			checkTable(t, table)
			if p := committedPlan(table, svc.Name); p.Number != 0 {
				t.Errorf("with %d endpoints: got number %d, want none", targets/6, p.Number)
			}
			table.DeleteService(svc.Name)
			tabletest.Sync(t, table)
			checkTable(t, table)
		})
	}
}

// Numbers are unique. Rows of one service port with a number do not depend on
// another one, nor on the order in which they change.
func TestNumbers(t *testing.T) {
	tabletest.NewNamespace(t)
	config := sampleConfig()
	config.Rules.NumberLimit = 1
	table := newTable(t, config, nft.IPv4)
	for i := range 3 {
		svc := tabletest.NumberedService(i)
		svc.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
		table.SetService(svc)
		for e := range 2 + i {
			tabletest.SetEndpoint(table, svc.Name, tabletest.NumberedEndpoint(i, e))
		}
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
	numbers := make(map[uint32]*ruleset.Plan)
	for _, p := range plans(table) {
		if p.Number == 0 || numbers[p.Number] != nil {
			t.Errorf("Service port %s: got number %d, want one that no other has", p.Name(), p.Number)
		}
		numbers[p.Number] = p
	}
	table.keeper.Distrust(keep.RewriteFailure, "test")
	tabletest.Sync(t, table)
	checkTable(t, table)
	// Another process gives other numbers.
	again := newTable(t, config, nft.IPv4)
	for i := range 2 {
		svc := tabletest.NumberedService(2 - i)
		svc.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
		again.SetService(svc)
		for e := range 5 {
			tabletest.SetEndpoint(again, svc.Name, tabletest.NumberedEndpoint(2-i, e))
		}
	}
	tabletest.Sync(t, again)
	checkTable(t, again)
}
