package answer

import (
	"errors"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// A query reads fewer Services if they have many endpoints. The error of a
// callback ends it.
func TestServicesQuery(t *testing.T) {
	a, p := newAnswers(t, nft.IPv4)
	for i := range 5 {
		svc := tabletest.NumberedService(i)
		p.SetService(svc)
		for j := range endpointsPerQuery / 2 {
			tabletest.SetEndpoint(p, svc.Name, tabletest.NumberedEndpoint(0, j))
		}
	}
	if n := len(viewServices(p.tables[0], serviceNames(p.tables[0], cluster.ServiceName{}))); n != 2 {
		t.Errorf("got %d Services in one query, want 2", n)
	}
	left, stop := 5, errors.New("stop")
	err := a.services(t.Context(), cluster.ServiceName{}, func(*table.ServiceView) error {
		if left--; left == 0 {
			return stop
		}
		return nil
	})
	if err != stop || left != 0 {
		t.Errorf("got error %v and %d Services less, want %v after the fifth Service", err, left, stop)
	}
}
