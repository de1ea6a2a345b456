package table

import (
	"errors"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// A table of another shape is replaced as a whole: in one transaction if packets
// get to it. The garbage collector may need another one, for chains that nothing
// leads to.
func TestTakeOver(t *testing.T) {
	firstDesign, err := os.ReadFile("testdata/first-design-ipv4.nft")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		text   string
		hooked bool // packets get to it
	}{
		"kube-proxy's": {`table ip kube-proxy {
			set cluster-ips { type ipv4_addr; comment "Active ClusterIPs"; elements = { 10.96.0.1 } }
			map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.96.0.1 . tcp . 80 : goto service-X } }
			chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
			chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
			chain service-X { numgen random mod 1 vmap { 0 : goto endpoint-X }; }
			chain endpoint-X { meta l4proto tcp dnat to 10.244.0.1:80; }
		}`, true},
		"first design": {string(firstDesign), true},
		"not hooked":   {"table ip kube-proxy {\n chain services { drop; }\n chain other { jump services; }\n }", false},
		"types of its own": {`table ip kube-proxy {
			set service-endpoints { type ipv4_addr; }
			chain nat-prerouting { type nat hook prerouting priority dstnat; }
		}`, true},
		"hooks of its own": {`table ip kube-proxy {
			map service-endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 1 : ip daddr . th dport; }
			chain nat-prerouting { type filter hook input priority 5; }
		}`, true},
		"empty": {`table ip kube-proxy { }`, false},
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			tabletest.LoadNFT(t, tt.text)
			table := newTable(t, sampleConfig(), nft.IPv4)
			tabletest.PassSample(table)
			var generations []uint32
			var listings [][]string
			k := injectFaults(table)
			k.OnCommit = func(_ *nft.Batch, commit func() error) error {
				if err := commit(); err != nil {
					return err
				}
				now, err := k.Generation()
				generations, listings = append(generations, now), append(listings, list(t, nft.IPv4))
				return err
			}
			before, err := k.Generation()
			if err != nil {
				t.Fatal(err)
			}
			tabletest.Sync(t, table)
			checkTable(t, table)
			if !tt.hooked {
				return
			}
			if want := nft.NextGeneration(before); generations[0] != want {
				t.Errorf("the first commit moved the generation from %d to %d, want %d", before, generations[0], want)
			}
			if want, got := fresh(t, table), withoutIdle(listings[0]); !slices.Equal(got, want) {
				t.Errorf("after the first commit the table is not as if written fresh:\n%s", difference(want, got))
			}
		})
	}
}

// A rewrite replaces sets with intervals: flushing one takes time that grows with
// the square of its rows.
func TestRewriteReplacesIntervalSets(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	handles := func() map[string]uint64 {
		found, err := table.kernel.Sets(table.committed.program)
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]uint64)
		for _, s := range found {
			all[s.Name] = s.Handle
		}
		return all
	}
	before := handles()
	table.doubt("test")
	tabletest.Sync(t, table)
	checkTable(t, table)
	after := handles()
	for _, s := range table.committed.program.Sets {
		if replaced := before[s.Name] != after[s.Name]; replaced != s.Interval {
			t.Errorf("set %s was replaced: %v, want %v", s.Name, replaced, s.Interval)
		}
	}
	check(t, table)
	if repairsOf(table) != 0 {
		t.Error("our own rewrite was repaired")
	}
}

// A failed rewrite changes nothing of what is known of the kernel: metrics show
// the rows that it has. Ids that were given for it are used again.
func TestFailedRewrite(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(table)
	tabletest.Sync(t, table)
	rows := maps.Clone(table.committed.rows)
	if rows["service-ips"] == 0 {
		t.Fatalf("rows %v", rows)
	}
	svc := tabletest.Service("late", "10.96.0.99", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	table.SetService(svc)
	table.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.99"))
	k := injectFaults(table)
	k.FailCommits()
	table.doubt("test")
	next := table.ids.next
	for range 5 {
		if err := table.Sync(); !errors.Is(err, tabletest.ErrCommit) {
			t.Fatal(err)
		}
	}
	if !maps.Equal(table.committed.rows, rows) {
		t.Errorf("rows are %v after a failed rewrite, want %v", table.committed.rows, rows)
	}
	if used := table.ids.next - next; used != 1 {
		t.Errorf("failed rewrites used %d ids, want 1", used)
	}
	k.OnCommit = nil
	tabletest.Sync(t, table)
	checkTable(t, table)
	if id := committedPlan(table, svc.Name).Cluster[0].ID; id != next {
		t.Errorf("id %d, want %d", id, next)
	}
}
