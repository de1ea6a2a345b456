package proxier

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The numbers of the tables are metrics.
func TestMetrics(t *testing.T) {
	tabletest.NewNamespace(t)
	p := newTestProxier(t, sampleConfig(), nft.IPv4)
	sink, m := p.sink, p.metrics
	refused := tabletest.Service(strings.Repeat("x", 300), "10.96.0.66", func(s *cluster.Service) {
		s.AffinityTimeout = time.Second // the name of its chain is too long
	})
	sink.SetService(refused)
	sink.SetEndpoint(refused.Name, tabletest.Endpoint("10.244.0.66"))
	sink.SetService(tabletest.Service("a", "10.96.0.1", nil))
	sink.SetService(tabletest.Service("b", "10.96.0.1", nil))
	tabletest.Sync(t, sink)
	p.publish()
	want := `
# HELP nftproxy_conflicts_total How often a service port lost an address and port to another one.
# TYPE nftproxy_conflicts_total counter
nftproxy_conflicts_total{ip_family="IPv4"} 1
# HELP nftproxy_contested_frontends Addresses and ports that several service ports claim.
# TYPE nftproxy_contested_frontends gauge
nftproxy_contested_frontends{ip_family="IPv4"} 1
# HELP nftproxy_refused_service_ports Service ports that are left out because the kernel refuses them.
# TYPE nftproxy_refused_service_ports gauge
nftproxy_refused_service_ports{ip_family="IPv4"} 1
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want),
		"nftproxy_conflicts_total", "nftproxy_contested_frontends", "nftproxy_refused_service_ports"); err != nil {
		t.Error(err)
	}
	valid := *refused
	valid.AffinityTimeout = 0
	sink.SetService(&valid)
	tabletest.Sync(t, sink)
	p.publish()
	want = `
# HELP nftproxy_refused_service_ports Service ports that are left out because the kernel refuses them.
# TYPE nftproxy_refused_service_ports gauge
nftproxy_refused_service_ports{ip_family="IPv4"} 0
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "nftproxy_refused_service_ports"); err != nil {
		t.Error(err)
	}
}
