package table

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// newUnconnected returns an IPv4 Table for node1 before Setup.
func newUnconnected(t testing.TB, config Config) *Table {
	t.Helper()
	tables, err := New(config, nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	tables[0].SetNode(&cluster.Node{Name: "node1"})
	return tables[0]
}

// sampleConfig returns the configuration for the sample Services.
func sampleConfig() Config { return Config{Rules: tabletest.Rules()} }
