package answer

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// NodeEndpoints are addresses of some ready endpoints on a node.
type NodeEndpoints struct {
	// Node is the name of the node, "" for endpoints whose node is unknown.
	Node      string       `json:"node"`
	ThisNode  bool         `json:"thisNode,omitempty"`
	Addresses []netip.Addr `json:"addresses"`
}

// Nodes asks for some endpoints of each node. The answers are in the order of
// the names of nodes.
var Nodes = socket.Plain[NodeEndpoints]("/v1/nodes")

// endpointsPerNode is the number of endpoints of a node and family in an
// answer.
const endpointsPerNode = 4

// nodes answers the question. If a family does not answer, the endpoints of the
// other one come before the error.
func (a *Answers) nodes(ctx context.Context, _ struct{}, yield func(*NodeEndpoints) error) error {
	found, _, failed := askEach(ctx, a.config.Proxy, a.families(), func(t *table.Table) map[string][]netip.Addr {
		return t.EndpointAddrs(endpointsPerNode)
	})
	all := make(map[string][]netip.Addr)
	for _, addrs := range found {
		for node := range addrs {
			all[node] = append(all[node], addrs[node]...)
		}
	}
	this := a.config.Proxy.Status().Node
	for _, node := range slices.Sorted(maps.Keys(all)) {
		slices.SortFunc(all[node], netip.Addr.Compare)
		if err := yield(&NodeEndpoints{node, node != "" && node == this, all[node]}); err != nil {
			return err
		}
	}
	return failed
}
