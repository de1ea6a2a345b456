package explain_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

const hashClients = 5000

func numbered(a, b byte, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{a, b, byte(i >> 8), byte(i)})
}

// hashingNode returns the table of a node after a sync that has never been
// connected to a kernel. Endpoints are added in a given order; those above 9
// are removed again.
func hashingNode(t *testing.T, name string, weights []int, order ...int) *table.Table {
	t.Helper()
	tables, err := table.New(table.Config{Rules: tabletest.Rules()}, nft.IPv4)
	must(t, err)
	tab, node := tables[0], tabletest.Node()
	node.Name = name
	tab.SetNode(node)
	svc := tabletest.Service("hashed", "10.96.0.60", func(svc *cluster.Service) {
		svc.Balance = cluster.BalanceSourceHash
	})
	tab.SetService(svc)
	for _, i := range order {
		e := tabletest.Endpoint(numbered(10, 244, i).String())
		e.Node = []string{"node1", "node2", "node3"}[i%3]
		if i < len(weights) {
			e.Weight = cluster.WeightOf(weights[i])
		}
		tabletest.SetEndpoint(tab, svc.Name, e)
	}
	for _, i := range order {
		if i > 9 {
			tabletest.DeleteEndpoint(tab, svc.Name, cluster.EndpointKey{Source: "s", Addr: numbered(10, 244, i)})
		}
	}
	return tab
}

// choices returns the endpoint of each client.
func choices(t *testing.T, tab *table.Table) (chosen []netip.AddrPort) {
	t.Helper()
	expected := mustExpect(t, tab)
	for i := range hashClients {
		r, err := explain.Explain(expected, host{}, explain.Query{
			Source: numbered(10, 10, i), Destination: netip.MustParseAddrPort("10.96.0.60:80"), Protocol: cluster.TCP,
		})
		must(t, err)
		if len(r.Outcomes) != 1 || r.Outcomes[0].Action != explain.ToEndpoint {
			t.Fatalf("client %s: got outcomes %+v, want one endpoint", numbered(10, 10, i), r.Outcomes)
		}
		chosen = append(chosen, r.Outcomes[0].Endpoint)
	}
	return chosen
}

// 5,000 clients have the same of 10 endpoints on three nodes, which learned
// the endpoints in different orders.
func TestHashesOfNodes(t *testing.T) {
	t.Parallel()
	first := choices(t, hashingNode(t, "node1", nil, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
	second := choices(t, hashingNode(t, "node2", nil, 12, 9, 8, 11, 7, 6, 5, 4, 10, 3, 2, 1, 0))
	third := choices(t, hashingNode(t, "node3", nil, 20, 4, 9, 0, 7, 2, 5, 1, 8, 3, 6))
	if !slices.Equal(first, second) || !slices.Equal(first, third) {
		t.Error("nodes choose different endpoints")
	}
	fewer := choices(t, hashingNode(t, "node1", nil, 0, 1, 2, 3, 4, 5, 6, 7, 8))
	moved, counts := 0, make(map[netip.AddrPort]int)
	for i, to := range first {
		counts[to]++
		if to != fewer[i] {
			moved++
		}
	}
	const due = hashClients / 10
	if moved > due*3/2 {
		t.Errorf("an endpoint is removed: %d of %d clients moved, want at most %d", moved, hashClients, due*3/2)
	}
	for to, n := range counts {
		if n > due*14/10 { // 1.3 times the rows, and chance
			t.Errorf("%s has %d clients, want about %d", to, n, due)
		}
	}
	if len(counts) != 10 {
		t.Errorf("%d endpoints have clients, want 10", len(counts))
	}
}

// A canary with a weight of 5 % gets 5 ± 1 % of clients.
func TestHashesWithWeights(t *testing.T) {
	t.Parallel()
	canary, n := netip.AddrPortFrom(numbered(10, 244, 1), 8080), 0
	for _, to := range choices(t, hashingNode(t, "node1", []int{95, 5}, 0, 1)) {
		if to == canary {
			n++
		}
	}
	if n < hashClients*4/100 || n > hashClients*6/100 {
		t.Errorf("the canary has %d of %d clients", n, hashClients)
	}
}
