package follow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The metrics grow when the table is deleted and its counters count from zero
// again.
func TestPacketCounters(t *testing.T) {
	tabletest.NewNamespace(t)
	_, m := newFollowers(t, tabletest.Rules(), nft.IPv4)
	count := func(packets, want int) {
		t.Helper()
		tabletest.LoadNFT(t, fmt.Sprintf(`table ip kube-proxy
			delete table ip kube-proxy
			table ip kube-proxy {
				counter localhost-nodeport-rejected-udp { packets %d bytes 1; };
				counter reject-no-endpoints { packets %[1]d bytes 1; };
				counter drop-source-range { packets %[1]d bytes 1; };
			}`, packets))
		const localhost = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"
		text := fmt.Sprintf(`
# HELP `+localhost+` Packets to UDP and SCTP NodePorts on localhost that were rejected.
# TYPE `+localhost+` counter
`+localhost+`{ip_family="IPv4",protocol="SCTP"} 0
`+localhost+`{ip_family="IPv4",protocol="UDP"} %[1]d
# HELP nftproxy_dropped_packets_total Packets of new connections that were dropped, by reason.
# TYPE nftproxy_dropped_packets_total counter
nftproxy_dropped_packets_total{ip_family="IPv4",reason="NoLocalEndpoints"} 0
nftproxy_dropped_packets_total{ip_family="IPv4",reason="SourceRange"} %[1]d
nftproxy_dropped_packets_total{ip_family="IPv4",reason="UnallocatedAddress"} 0
# HELP nftproxy_rejected_packets_total Packets of new connections that were rejected, by reason.
# TYPE nftproxy_rejected_packets_total counter
nftproxy_rejected_packets_total{ip_family="IPv4",reason="NoEndpoints"} %[1]d
nftproxy_rejected_packets_total{ip_family="IPv4",reason="NoWeight"} 0
nftproxy_rejected_packets_total{ip_family="IPv4",reason="UnknownPort"} 0
`, want)
		if err := testutil.CollectAndCompare(m, strings.NewReader(text), localhost,
			"nftproxy_dropped_packets_total", "nftproxy_rejected_packets_total"); err != nil {
			t.Error(err)
		}
	}
	count(5, 5)
	count(7, 7)
	count(2, 9)
	count(2, 9)
	tabletest.NFT(t, "", "flush", "ruleset")
	count(3, 10)
}
