package proxier

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// The followers of a Proxier get the commits of its tables.
func TestFollowersOfCommits(t *testing.T) {
	tabletest.NewNamespace(t)
	config := sampleConfig()
	config.Rules.ServiceMetrics = ruleset.ServiceMetricsAll
	p := newTestProxier(t, config, nft.IPv4, nft.IPv6)
	p.sink.SetService(dualStack(80).Service)
	tabletest.Sync(t, p.sink)
	if n := testutil.CollectAndCount(p.Metrics(), "nftproxy_service_connections_total"); n != 2 {
		t.Errorf("got %d metrics of connections to the Service, want one of each family", n)
	}
}

// The followers of a Proxier get its EndpointSlices: the connections to an
// endpoint that was terminating when it left are reset.
func TestFollowersOfSlices(t *testing.T) {
	tabletest.NewNamespace(t)
	config := sampleConfig()
	config.Rules.ResetStaleConnections = true
	p := newTestProxier(t, config, nft.IPv4)
	svc := tabletest.NumberedService(0)
	e := tabletest.NumberedEndpoint(0, 0)
	e.Ready, e.Serving, e.Terminating = false, false, true
	slice := &translate.EndpointSlice{
		Name:    translate.SliceName{Namespace: svc.Name.Namespace, Name: "slice"},
		Service: svc.Name, Family: nft.IPv4, Endpoints: []*cluster.Endpoint{e},
	}
	p.SetService(&translate.Service{Name: svc.Name, Service: svc})
	p.SetEndpointSlice(slice)
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	startLoop(t, p)
	<-p.Synced()
	p.DeleteEndpointSlice(slice.Name)
	for range 500 {
		gone := gather(t, p.Metrics())["nftproxy_endpoints_gone_total"].GetMetric()[0]
		if gone.GetCounter().GetValue() == 1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("got no reset of connections within 5 s")
}
