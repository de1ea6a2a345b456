package proxier

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// Rendering into a buffer that is used again allocates the name of the service port and nothing else, however many endpoints it has.
func TestRenderAllocations(t *testing.T) {
	b, err := NewBackend(sampleConfig(), nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	svc := benchService(1)
	b.SetService(svc)
	for e := range benchEndpoints {
		b.SetEndpoint(svc.Name, benchEndpoint(1, e))
	}
	plan := b.planOf(b.services[svc.Name].ports[0])
	var rows []nft.Row
	if n := testing.AllocsPerRun(10, func() { rows = b.render.rows(rows[:0], plan) }); n > 1 {
		t.Errorf("%v allocations for %d rows", n, len(rows))
	}
}
