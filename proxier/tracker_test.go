package proxier

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// The tracker holds the last version of an EndpointSlice, which the source
// holds, too, and no slices of a family that is not served.
func TestTrackerHoldsLastVersion(t *testing.T) {
	tr := newTracker(new(Config), newEventLog(nil), newMetrics(), nft.IPv4)
	slice := func(f nft.Family, ip string) *translate.EndpointSlice {
		name := translate.SliceName{Namespace: "ns", Name: f.Name()}
		return &translate.EndpointSlice{
			Name: name, Service: cluster.ServiceName{Namespace: "ns", Name: "svc"}, Family: f,
			Endpoints: []*cluster.Endpoint{tabletest.Endpoint(ip)},
		}
	}
	tr.setSlice(slice(nft.IPv4, "10.0.0.1"))
	tr.setSlice(slice(nft.IPv6, "fd00::1"))
	if tr.replaceSlice(slice(nft.IPv4, "10.0.0.1")) {
		t.Error("an equal slice: got a change")
	}
	again := slice(nft.IPv4, "10.0.0.1")
	if tr.setSlice(again); len(tr.slices) != 1 || tr.slices[again.Name] != again {
		t.Errorf("got %v, want the last version of the IPv4 slice", tr.slices)
	}
}
