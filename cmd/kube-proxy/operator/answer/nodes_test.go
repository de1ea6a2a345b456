package answer

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// Each node has at most four ready endpoints of a family.
func TestNodes(t *testing.T) {
	a, p := newAnswers(t, nft.IPv4, nft.IPv6)
	service := tabletest.Service("web", "10.96.0.10", nil)
	p.SetService(service)
	for i := range 6 {
		e := tabletest.Endpoint(fmt.Sprint("10.244.1.", i+1))
		if e.Node = "node1"; i == 0 {
			e.Ready = false
		}
		tabletest.SetEndpoint(p, service.Name, e)
	}
	other := tabletest.Endpoint("10.244.2.1")
	other.Node = ""
	tabletest.SetEndpoint(p, service.Name, other)
	got := make(map[string]int)
	err := a.nodes(t.Context(), struct{}{}, func(n *NodeEndpoints) error {
		got[n.Node] = len(n.Addresses)
		if n.ThisNode || n.Addresses[0].String() == "10.244.1.1" {
			t.Errorf("got %+v", n)
		}
		return nil
	})
	if want := map[string]int{"node1": 4, "": 1}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
