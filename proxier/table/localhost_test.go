package table

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// localhostConfig returns a configuration with NodePorts on localhost.
func localhostConfig() Config {
	config := sampleConfig()
	config.Rules.NodePortAddresses = ruleset.NodePortAddresses{
		Primary: true, CIDRs: tabletest.Prefixes("127.0.0.0/8", "::1/128"),
	}
	config.Rules.LocalhostNodePorts = true
	return config
}

// newLocalhost returns a Table with NodePorts on localhost, after a sync with
// the sample Services and one with NodePorts of all protocols.
func newLocalhost(t testing.TB, f nft.Family) *Table {
	t.Helper()
	table := newTable(t, localhostConfig(), f)
	tabletest.PassSample(table)
	table.SetService(withNodePorts(f))
	tabletest.Sync(t, table)
	return table
}

func withNodePorts(f nft.Family) *cluster.Service {
	return tabletest.Service("dns", "", func(s *cluster.Service) {
		s.Families = []nft.Family{f}
		s.Ports = nil
		for i, p := range cluster.Protocols() {
			s.Ports = append(s.Ports, cluster.ServicePort{
				Name: p.String(), Protocol: p, Port: 53, NodePort: uint16(30053 + i),
			})
		}
	})
}

// The table rejects UDP and SCTP NodePorts on localhost. nft loads its
// listing. Without localhost, the same table has no object of it.
func TestLocalhostTable(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			tabletest.NewNamespace(t)
			checkTable(t, newLocalhost(t, f))
			listing := tabletest.NFT(t, "", "list", "table", f.String(), ruleset.TableName)
			tabletest.LoadNFT(t, "flush ruleset\n"+listing)
			rows := tabletest.NFT(t, "", "list", "set", f.String(), ruleset.TableName, "localhost-nodeports")
			if strings.Contains(rows, "30053") || !strings.Contains(rows, "30054") || !strings.Contains(rows, "30055") {
				t.Errorf("got other rows than UDP and SCTP:\n%s", rows)
			}

			config := sampleConfig()
			config.Rules.NodePortAddresses = ruleset.NodePortAddresses{}
			without := newTable(t, config, f)
			tabletest.PassSample(without)
			without.SetService(withNodePorts(f))
			tabletest.Sync(t, without)
			checkTable(t, without)
			if listing := strings.Join(listTable(t, f), "\n"); strings.Contains(listing, "localhost") {
				t.Errorf("without localhost: got\n%s", listing)
			}
			checkTable(t, newLocalhost(t, f))
		})
	}
}
