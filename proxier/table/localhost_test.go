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
		for i, p := range []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP} {
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

// A changed counter is detected and repaired once.
func TestTamperingWithCounters(t *testing.T) {
	const counter = "counter ip kube-proxy localhost-nodeport-rejected-udp"
	for name, commands := range map[string]string{
		"delete":  "flush chain ip kube-proxy reject-localhost\ndelete " + counter,
		"replace": "flush chain ip kube-proxy reject-localhost\ndelete " + counter + "\nadd " + counter,
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			table := newLocalhost(t, nft.IPv4)
			rewrites := table.stats.Rewrites
			tabletest.LoadNFT(t, commands)
			mustCheck(t, table)
			checkTable(t, table)
			checkRepairs(t, table, damagedCounter, rewrites)
			mustCheck(t, table)
			if n := repairsOf(table); n != 1 {
				t.Errorf("got %d repairs, want 1", n)
			}
		})
	}
}

// After a restart, the counters keep their values.
func TestCountersAfterRestart(t *testing.T) {
	tabletest.NewNamespace(t)
	newLocalhost(t, nft.IPv4)
	listing := tabletest.NFT(t, "", "list", "ruleset")
	listing = strings.Replace(listing, "packets 0 bytes 0", "packets 7 bytes 700", 1)
	tabletest.LoadNFT(t, "flush ruleset\n"+listing)
	table := newLocalhost(t, nft.IPv4)
	counters, err := table.kernel.Counters(table.committed.program)
	if err != nil || len(counters) != 2 || counters[0].Packets+counters[1].Packets != 7 {
		t.Errorf("got counters %+v, %v; want 7 packets", counters, err)
	}
}
