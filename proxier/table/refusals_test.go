package table

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// refusedNames returns the names of the service ports that are left out, sorted.
func refusedNames(table *Table) []string {
	var names []string
	for p := range table.refusals {
		names = append(names, p.name())
	}
	slices.Sort(names)
	return names
}

// What the kernel refuses is left out and named once; the others are served; it comes back when it is sound.
func TestRefused(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
	table := newTable(t, config, nft.IPv4)
	table.SetNode(tabletest.Node())
	// Chains are named after services with affinity, and the kernel takes names of up to 255 bytes.
	bad := tabletest.Service(strings.Repeat("x", 300), "10.96.0.66", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	for i := range 5 {
		svc := tabletest.Service(fmt.Sprint("good", i), fmt.Sprint("10.96.0.", i), nil)
		table.SetService(svc)
		table.SetEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprint("10.244.0.", i)))
	}
	table.SetService(bad)
	table.SetEndpoint(bad.Name, tabletest.Endpoint("10.244.0.66"))
	tabletest.Sync(t, table)
	check := func(when string, refused ...string) {
		t.Helper()
		checkTable(t, table)
		if got := refusedNames(table); !slices.Equal(got, refused) {
			t.Errorf("%s: refused are %q, want %q", when, got, refused)
		}
		if got := recorded.Of(cluster.ReasonRefused); len(got) > 1 || table.stats.Refusals != len(got) {
			t.Errorf("%s: events about %q, %d counted; want one", when, got, table.stats.Refusals)
		}
	}
	name := bad.Name.String() + ":http"
	check("first", name)

	good := tabletest.Service("late", "10.96.0.77", nil)
	table.SetService(good)
	table.SetEndpoint(good.Name, tabletest.Endpoint("10.244.0.77"))
	tabletest.Sync(t, table)
	check("another one comes", name)

	rewrites := table.stats.Rewrites
	table.SetEndpoint(bad.Name, tabletest.Endpoint("10.244.0.67"))
	tabletest.Sync(t, table)
	check("it changes, and is still bad", name)
	if err := table.Resync(); err != nil {
		t.Fatal(err)
	}
	check("resync", name)
	if table.stats.Rewrites != rewrites {
		t.Errorf("trying again took %d rewrites", table.stats.Rewrites-rewrites)
	}

	sound := *bad
	sound.AffinityTimeout = 0
	table.SetService(&sound)
	tabletest.Sync(t, table)
	check("the cause is gone")
	if text := tabletest.NFT(t, "", "list", "map", "ip", ruleset.TableName, "service-ips"); !strings.Contains(text, "10.96.0.66 . ") {
		t.Error("the service did not come back")
	}
}

// What was refused comes back by itself with a Resync once the kernel takes it.
func TestRefusedComesBack(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	table.SetService(svc)
	table.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	sound := false
	port := table.desired.services[svc.Name].ports[0]
	injectFaults(table).OnCommit = func(_ *nft.Batch, commit func() error) error {
		if sound || table.refusals.leftOut(port) {
			return commit()
		}
		return &nft.CommitError{Table: "t", Problems: []nft.Problem{{Op: "add element", Tag: port.tag, Errno: unix.ENOMEM}}}
	}
	resync := func(refused ...string) {
		t.Helper()
		if err := table.Resync(); err != nil {
			t.Fatal(err)
		}
		if got := refusedNames(table); !slices.Equal(got, refused) {
			t.Errorf("refused are %q, want %q", got, refused)
		}
		checkTable(t, table)
	}
	tabletest.Sync(t, table)
	resync("ns/svc:http")
	sound = true
	resync()
}
