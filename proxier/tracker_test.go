package proxier

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/tabletest"
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

// The tracker counts the EndpointSlices of a Service, also those that have no
// endpoints of a family that is served.
func TestHasSlice(t *testing.T) {
	tr := newTracker(new(Config), newEventLog(nil), newMetrics(), nft.IPv4)
	a, b := cluster.ServiceName{Namespace: "ns", Name: "a"}, cluster.ServiceName{Namespace: "ns", Name: "b"}
	slice := func(of cluster.ServiceName, f nft.Family, ips ...string) *translate.EndpointSlice {
		s := &translate.EndpointSlice{Name: translate.SliceName{Namespace: "ns", Name: "slice"}, Service: of, Family: f}
		for _, ip := range ips {
			s.Endpoints = append(s.Endpoints, tabletest.Endpoint(ip))
		}
		return s
	}
	for _, step := range []struct {
		slice    *translate.EndpointSlice
		ofA, ofB bool
		empty    int
	}{
		{slice(a, nft.IPv4), true, false, 1},
		{slice(b, nft.IPv4), false, true, 1},
		{slice(b, nft.IPv4, "10.0.0.1"), false, true, 0},
		{slice(a, nft.IPv4, "10.0.0.1"), true, false, 0},
		{slice(b, nft.IPv6, "fd00::1"), false, true, 1},
		{slice(cluster.ServiceName{}, nft.IPv4), false, false, 0}, // deleted
	} {
		tr.setSlice(step.slice)
		if tr.hasSlice(a) != step.ofA || tr.hasSlice(b) != step.ofB || len(tr.empty) != step.empty {
			t.Errorf("after %+v: got %v, %v", step.slice, tr.count, tr.empty)
		}
	}
	if len(tr.count) != 0 {
		t.Errorf("got %v, want no Service", tr.count)
	}
}
