package table

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// A table of another form is replaced. If packets use it, one transaction
// replaces it. A second transaction may delete unused chains.
func TestTakeOver(t *testing.T) {
	firstDesign, err := os.ReadFile("testdata/first-design-ipv4.nft")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		text   string
		hooked bool // packets use the table
	}{
		"kube-proxy": {`table ip kube-proxy {
			set cluster-ips { type ipv4_addr; comment "Active ClusterIPs"; elements = { 10.96.0.1 } }
			map service-ips {
				type ipv4_addr . inet_proto . inet_service : verdict;
				elements = { 10.96.0.1 . tcp . 80 : goto service-X }
			}
			chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
			chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
			chain service-X { numgen random mod 1 vmap { 0 : goto endpoint-X }; }
			chain endpoint-X { meta l4proto tcp dnat to 10.244.0.1:80; }
		}`, true},
		"first design": {string(firstDesign), true},
		"no hook": {`table ip kube-proxy {
			chain services { drop; }
			chain other { jump services; }
		}`, false},
		"other type of a set": {`table ip kube-proxy {
			set service-targets { type ipv4_addr; }
			chain nat-prerouting { type nat hook prerouting priority dstnat; }
		}`, true},
		"other hook of a chain": {`table ip kube-proxy {
			map service-targets {
				type ipv4_addr . inet_proto . inet_service . classid : ipv4_addr . inet_service;
			}
			chain nat-prerouting { type filter hook input priority 5; }
		}`, true},
		"empty": {`table ip kube-proxy { }`, false},
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			tabletest.LoadNFT(t, tt.text)
			table := newTable(t, sampleConfig(), nft.IPv4)
			tabletest.PassSample(table)
			var generation uint32 // after the first commit
			var listing []string  // after the first commit
			k := injectFaults(table)
			before, err := k.Generation()
			if err != nil {
				t.Fatal(err)
			}
			k.OnCommit = func(_ *nft.Batch, commit func() error) error {
				err := commit()
				if err == nil && listing == nil {
					listing = listTable(t, nft.IPv4)
					generation, err = k.Generation()
				}
				return err
			}
			tabletest.Sync(t, table)
			checkTable(t, table)
			if !tt.hooked {
				return
			}
			if want := nft.NextGeneration(before); generation != want {
				t.Errorf("generation after the first commit: got %d, want %d", generation, want)
			}
			wantCopies(t, listing)
			listing = slices.DeleteFunc(listing, isTakeoverBlock)
			if want, got := listDesired(t, table), withoutIdle(listing); !slices.Equal(got, want) {
				t.Errorf("after the first commit, the table is not the desired one:\n%s", difference(want, got))
			}
		})
	}
}

// The table of the previous version, with sets of ranges, is replaced in one
// transaction. Clients with session affinity keep their endpoints.
func TestTakeOverPreviousVersion(t *testing.T) {
	text, err := os.ReadFile("testdata/v0.1.0-ipv4.nft")
	if err != nil {
		t.Fatal(err)
	}
	tabletest.NewNamespace(t)
	tabletest.LoadNFT(t, string(text))
	tabletest.LoadNFT(t, "add element ip kube-proxy clients-36 { 10.244.1.7 . 4097 timeout 1h }")
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	const clients = "sticky-clients-36" // as before
	var first []string                  // the table after the first commit
	injectFaults(table).OnCommit = func(_ *nft.Batch, commit func() error) error {
		err := commit()
		if first == nil {
			first = withoutSets(listTable(t, nft.IPv4), clients)
		}
		return err
	}
	tabletest.Sync(t, table)
	checkTable(t, table, clients)
	for _, line := range withoutSets(listDesired(t, table), clients) {
		if !slices.Contains(first, line) {
			t.Errorf("after the first commit, the table has no %s", line)
		}
	}
	client := tabletest.NFT(t, "", "get", "element", "ip", "kube-proxy", clients, "{ 10.244.1.7 . 0:1001 }")
	if !strings.Contains(client, "expires 59m") {
		t.Errorf("got client %s, want one that expires in an hour", client)
	}
	if p := committedPlan(table, cluster.ServiceName{Namespace: "default", Name: "sticky"}); p.Cluster[1].ID != 4097 {
		t.Errorf("got targets %v, want the ids of the previous version", p.Cluster)
	}
}

// A rewrite flushes the sets, so that packets find the old or the new rows, and
// deletes the balancers that no Service needs.
func TestRewriteFlushesSets(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	scaleTo := func(n int) {
		var endpoints []*cluster.Endpoint
		for i := range n {
			endpoints = append(endpoints, tabletest.Endpoint(fmt.Sprintf("10.244.9.%d", i+1)))
		}
		table.SetEndpoints(web, "s", endpoints)
		tabletest.Sync(t, table)
	}
	for n := range 20 {
		scaleTo(n)
	}
	handles := func() map[string]uint64 {
		found, err := table.keeper.Kernel().Sets(table.keeper.Program())
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]uint64)
		for _, s := range found {
			all[s.Name] = s.Handle
		}
		return all
	}
	before, balancers := handles(), table.Stats().Rows["class-chains"]
	table.keeper.Distrust(keep.RewriteFailure, "test")
	tabletest.Sync(t, table)
	checkTable(t, table)
	if after := handles(); !maps.Equal(before, after) {
		t.Errorf("a rewrite replaced sets: before %v, after %v", before, after)
	}
	if n := table.Stats().Rows["class-chains"]; n > balancers-15 {
		t.Errorf("got %d balancers before a rewrite and %d after it", balancers, n)
	}
	scaleTo(11) // a balancer that was deleted
	mustCheck(t, table)
	if n := repairsOf(table); n != 0 {
		t.Errorf("got %d repairs of our own rewrite, want none", n)
	}
}

// Rules that another program adds to a base chain and that refer to sets of the
// table do not prevent rewrites.
func TestForeignRuleInBaseChain(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	for _, chain := range []string{"nat-prerouting", "nat-output", "nat-postrouting"} {
		tabletest.LoadNFT(t, "insert rule ip kube-proxy "+chain+
			" ip daddr . meta l4proto . th dport . ip saddr @firewall-sources-24 counter")
	}
	mustCheck(t, table)
	if n := repairsOf(table); n != 1 {
		t.Errorf("got %d repairs, want 1", n)
	}
	checkTable(t, table)
}

// A failed rewrite does not change the committed state, so that metrics show
// the rows in the kernel. Further rewrites do not use up ids.
func TestFailedRewrite(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	rows := maps.Clone(table.Stats().Rows)
	if rows["service-classes"] == 0 {
		t.Fatalf("got rows %v, want some of service-classes", rows)
	}
	svc := tabletest.Service("late", "10.96.0.99", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	table.SetService(svc)
	tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.0.99"))
	k := injectFaults(table)
	k.FailCommits()
	table.keeper.Distrust(keep.RewriteFailure, "test")
	next := table.ids.next
	for range 5 {
		if err := table.Sync(); !errors.Is(err, tabletest.ErrCommit) {
			t.Fatalf("got %v, want %v", err, tabletest.ErrCommit)
		}
	}
	if !maps.Equal(table.Stats().Rows, rows) {
		t.Errorf("rows after failed rewrites: got %v, want %v", table.Stats().Rows, rows)
	}
	if used := table.ids.next - next; used != 1 {
		t.Errorf("failed rewrites: got %d new ids, want 1", used)
	}
	k.OnCommit = nil
	tabletest.Sync(t, table)
	checkTable(t, table)
	if id := committedPlan(table, svc.Name).Cluster[0].ID; id != next {
		t.Errorf("id of the new endpoint: got %d, want %d", id, next)
	}
}

// A table of another proxy that appears between the inspection and the commit
// is replaced, and not mixed with ours.
func TestTableAppearsBeforeCommit(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	once := true
	injectFaults(table).OnCommit = func(_ *nft.Batch, commit func() error) error {
		if once {
			once = false
			tabletest.LoadNFT(t, `table ip kube-proxy {
				chain nat-prerouting { type nat hook prerouting priority dstnat; jump other; }
				chain other { ip daddr 10.96.0.10 drop; }
			}`)
		}
		return commit()
	}
	table.keeper.Distrust(keep.RewriteFailure, "test")
	tabletest.NFT(t, "", "flush", "ruleset")
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// syncCounter counts the syncs that an observer is notified of.
type syncCounter struct{ syncs, full int }

func (c *syncCounter) Committed(*Commit) {}

func (c *syncCounter) Synced(r keep.SyncResult) {
	c.syncs++
	if r.Full {
		c.full++
	}
}

// An observer is notified once of a sync that begins as an update and ends as a
// rewrite.
func TestOneSyncResult(t *testing.T) {
	tabletest.NewNamespace(t)
	var count syncCounter
	config := sampleConfig()
	config.Observer = &count
	table := newTable(t, config, nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	tabletest.NFT(t, "", "flush", "ruleset")
	table.SetService(tabletest.Service("svc", "10.96.0.99", nil))
	tabletest.Sync(t, table)
	if want := (syncCounter{2, 2}); count != want {
		t.Errorf("got %+v, want %+v", count, want)
	}
	tabletest.NFT(t, "", "flush", "ruleset")
	mustCheck(t, table)
	if want := (syncCounter{3, 3}); count != want {
		t.Errorf("after a repair: got %+v, want %+v", count, want)
	}
	mustCheck(t, table)
	if count.syncs != 3 {
		t.Errorf("after a check: got %d syncs, want 3", count.syncs)
	}
}
