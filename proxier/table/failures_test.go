package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// plansLost is an Observer that counts plans that were removed.
type plansLost int

func (n *plansLost) Synced(keep.SyncResult) {}

func (n *plansLost) Committed(c *Commit) {
	for _, change := range c.Changes {
		if change.Before != nil && change.After == nil {
			*n++
		}
	}
}

// newChunked returns a Table with Services, which writes a table that no packet
// uses in many transactions.
func newChunked(t *testing.T) (*Table, *tabletest.Events, *plansLost) {
	t.Helper()
	config, recorded := recordEvents()
	lost := new(plansLost)
	config.Observer = lost
	config.Limits = atOnce()
	config.Limits.ColdBytes = 4000
	table := newTable(t, config, nft.IPv4)
	table.SetNode(tabletest.Node())
	for i := range 100 {
		svc := tabletest.NumberedService(i)
		table.SetService(svc)
		for e := range tabletest.ManyEndpoints {
			tabletest.SetEndpoint(table, svc.Name, tabletest.NumberedEndpoint(i, e))
		}
	}
	return table, recorded, lost
}

// While several transactions write the table, other programs delete it, replace
// it or change its content, more than once. The write begins again, and refuses
// no service port.
func TestTableChangesDuringWrite(t *testing.T) {
	const replace = "delete table ip kube-proxy; add table ip kube-proxy"
	for name, commands := range map[string]map[int]string{
		"flushed twice":           {3: "flush ruleset", 6: "flush ruleset"},
		"flushed before the last": {13: "flush ruleset"},
		"flushed in a row":        {2: "flush ruleset", 3: "flush ruleset", 4: "flush ruleset", 5: "flush ruleset"},
		"replaced twice":          {2: replace, 5: replace},
		"content deleted": {3: "flush set ip kube-proxy cluster-ips",
			5: "flush map ip kube-proxy service-classes"},
		"content of another proxy": {3: replace + "; add chain ip kube-proxy services { type nat hook input " +
			"priority 0; }"},
	} {
		for _, start := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/start=%v", name, start), func(t *testing.T) {
				tabletest.NewNamespace(t)
				table, recorded, lost := newChunked(t)
				if !start {
					tabletest.Sync(t, table)
					tabletest.LoadNFT(t, "flush ruleset")
				}
				commits := 0
				k := injectFaults(table)
				k.OnCommit = func(_ *nft.Batch, commit func() error) error {
					commits++
					if text := commands[commits]; text != "" {
						tabletest.LoadNFT(t, strings.ReplaceAll(text, "; ", "\n"))
					}
					return commit()
				}
				if start {
					tabletest.Sync(t, table)
				}
				mustCheck(t, table) // content that was deleted
				mustCheck(t, table)
				checkTable(t, table)
				if len(*recorded)+table.Stats().Refusals+failing(table)+int(*lost) != 0 || !table.UpToDate() {
					t.Errorf("got events %v, %d refusals, %d plans lost, up to date: %v",
						*recorded, table.Stats().Refusals, *lost, table.UpToDate())
				}
			})
		}
	}
}

// If the table is deleted at each commit, the sync fails and refuses no service
// port. The next one succeeds.
func TestTableDeletedAgainAndAgain(t *testing.T) {
	tabletest.NewNamespace(t)
	table, recorded, _ := newChunked(t)
	k := injectFaults(table)
	k.OnCommit = func(_ *nft.Batch, commit func() error) error {
		tabletest.LoadNFT(t, "flush ruleset")
		return commit()
	}
	for range 2 {
		if err := table.Sync(); !errors.Is(err, nft.ErrGeneration) || table.UpToDate() {
			t.Errorf("got %v, up to date: %v", err, table.UpToDate())
		}
	}
	k.OnCommit = nil
	tabletest.Sync(t, table)
	checkTable(t, table)
	if len(*recorded)+failing(table) != 0 {
		t.Errorf("got events %v and %d refusals", *recorded, failing(table))
	}
}

// faults makes commits fail that write the wanted plan of a service port.
type faults struct {
	err            error
	updates, whole int // number of commits that failed
}

func (f *faults) inject(table *Table, p *portState) {
	injectFaults(table).OnCommit = func(b *nft.Batch, commit func() error) error {
		switch {
		case f.err == nil || !p.kept.Pending() || writesLess(p):
			return commit()
		case b.Len() > 8000:
			f.whole++
		default:
			f.updates++
		}
		return f.err
	}
}

// problem returns the kernel's error about a message, or about the whole
// transaction if tag is 0.
func problem(errno unix.Errno, tag uint32) error {
	p := nft.Problem{Op: "commit", Errno: errno}
	if tag != 0 {
		p = nft.Problem{Op: "add element", Object: "service-classes", Errno: errno, Tag: tag}
	}
	return &nft.CommitError{Table: "t", Problems: []nft.Problem{p}}
}

// The kernel refuses a change. If the error can pass, updates try it again
// three times. Other changes do not wait for it. If the error does not pass, the
// service port keeps what is left of its last rules.
func TestRefusedChange(t *testing.T) {
	tagged := func(errno unix.Errno) func(uint32) error {
		return func(tag uint32) error { return problem(errno, tag) }
	}
	whole := func(errno unix.Errno) func(uint32) error { return func(uint32) error { return problem(errno, 0) } }
	unsent := func(errno unix.Errno) func(uint32) error {
		return func(uint32) error { return fmt.Errorf("send: %w", errno) }
	}
	type result struct {
		failed         int // syncs
		updates, whole int // commits that failed
		refused        bool
		others         int // the sync that wrote the other change
	}
	const persistent = 5
	for _, tt := range []struct {
		name string
		err  func(tag uint32) error
		n    int // number of syncs in which commits fail
		want result

		fight bool // another program changed the table a moment ago
	}{
		{"ENOMEM once", tagged(unix.ENOMEM), 1, result{failed: 1, updates: 1, others: 1}, false},
		{"EINTR twice", tagged(unix.EINTR), 2, result{failed: 2, updates: 2, others: 1}, false},
		{"EAGAIN", tagged(unix.EAGAIN), persistent, result{failed: 3, updates: 4, refused: true, others: 1}, false},
		{"EBUSY", tagged(unix.EBUSY), persistent, result{failed: 3, updates: 4, refused: true, others: 1}, false},
		{"EEXIST", tagged(unix.EEXIST), persistent, result{updates: 1, whole: 1, refused: true, others: 1}, false},
		{"ENOENT", tagged(unix.ENOENT), persistent, result{updates: 1, whole: 1, refused: true, others: 1}, false},
		{"EEXIST in a fight", tagged(unix.EEXIST), persistent, result{failed: 3, updates: 4, refused: true, others: 1},
			true},
		{"EINVAL", tagged(unix.EINVAL), persistent, result{updates: 1, refused: true, others: 1}, false},
		{"ENOBUFS once", unsent(unix.ENOBUFS), 1, result{failed: 1, updates: 1, others: 2}, false},
		{"ENOBUFS", unsent(unix.ENOBUFS), persistent, result{failed: 5, updates: 5, whole: 1, others: 6}, false},
		{"ENOMEM of all", whole(unix.ENOMEM), persistent, result{failed: 5, updates: 5, whole: 1, others: 6}, false},
		{"EPERM", whole(unix.EPERM), persistent, result{failed: 5, updates: 5, others: 6}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			config, recorded := recordEvents()
			table := newTable(t, config, nft.IPv4)
			tabletest.PassSample(table)
			tabletest.Sync(t, table)
			port := table.desired.services[web].ports[0]
			if tt.fight {
				repairTwice(t, table)
			}
			f := faults{err: tt.err(port.tag)}
			f.inject(table, port)
			endpoints := slices.Clone(table.desired.services[web].endpoints)
			table.SetEndpoints(web, "web", slices.DeleteFunc(endpoints, func(e *cluster.Endpoint) bool {
				return e.Addr == addr("10.244.2.5")
			}))
			tabletest.SetEndpoint(table, web, tabletest.Endpoint("10.244.9.9"))
			tabletest.SetEndpoint(table, lb, tabletest.Endpoint("10.244.9.10"))
			var got result
			for i := range 10 {
				if i == tt.n {
					f.err = nil
				}
				if err := table.Sync(); err != nil || !table.UpToDate() {
					got.failed++
				}
				if got.others == 0 && len(committedPlan(table, lb).Cluster) == 3 {
					got.others = i + 1
				}
			}
			got.updates, got.whole, got.refused = f.updates, f.whole, len(refusedNames(table)) == 1
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			want := 3
			if tt.want.refused {
				want = 2 // without the one that is gone
			}
			if n := len(committedPlan(table, web).Cluster); n != want {
				t.Errorf("got %d endpoints, want %d", n, want)
			}
			events := recorded.Of(cluster.ReasonRefused)
			if len(events) != table.Stats().Refusals || (len(events) == 1) != tt.want.refused {
				t.Errorf("got events about %q", events)
			}
			checkTable(t, table)
			if err := table.Resync(); err != nil || failing(table) != 0 {
				t.Errorf("Resync: got %v, %d refusals", err, failing(table))
			}
			checkTable(t, table)
		})
	}
}

// A row of another program has the key that a new Service needs, where
// verification did not find it. The Service is served, and so are others.
func TestForeignRowOnKey(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	tabletest.LoadNFT(t, "add element ip kube-proxy service-classes { 10.96.0.99 . tcp . 80 : 0:9 }")
	injectFaults(table).NoCounts = true
	for i, name := range []string{"new", "other"} {
		svc := tabletest.Service(name, fmt.Sprintf("10.96.0.%d", 99+i), nil)
		table.SetService(svc)
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.9.9"))
	}
	tabletest.Sync(t, table)
	checkTable(t, table)
	if n := repairsOf(table); n != 1 || failing(table) != 0 {
		t.Errorf("got %d repairs and %d refusals, want 1 and 0", n, failing(table))
	}
}

// A refused service port gives up the frontend that another one owns now. A new
// one rejects connections.
func TestRefusedPortLosesFrontend(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	port := table.desired.services[web].ports[0]
	f := faults{err: problem(unix.EINVAL, port.tag)}
	f.inject(table, port)
	older := tabletest.Service("older", "10.96.0.10", nil) // the ClusterIP of web
	older.Name.Namespace = "a"
	tabletest.SetEndpoint(table, web, tabletest.Endpoint("10.244.9.9"))
	table.SetService(older)
	tabletest.SetEndpoint(table, older.Name, tabletest.Endpoint("10.244.9.1"))
	tabletest.Sync(t, table)
	checkTable(t, table)
	if p := committedPlan(table, older.Name); p == nil || len(p.Cluster) != 1 || port.plan() != nil {
		t.Errorf("got plans %+v and %+v", p, port.plan())
	}
	table.SetService(refusedService())
	tabletest.SetEndpoint(table, refusedService().Name, tabletest.Endpoint("10.244.0.66"))
	tabletest.Sync(t, table)
	rows := tabletest.NFT(t, "", "list", "map", "ip", "kube-proxy", "no-endpoint-services")
	if !strings.Contains(rows, "10.96.0.66 . tcp . 80") {
		t.Errorf("a refused new Service does not reject connections:\n%s", rows)
	}
}

// The kernel refuses a change of a service port, and then also less of it. The
// new owner of its frontend, whose row is equal, waits for the next sync.
func TestPortRefusedTwiceLosesFrontend(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	none := cluster.ServiceName{Namespace: "default", Name: "none"} // rejects connections
	tag := tagOf(table, none)
	answer(table, problem(unix.EINVAL, tag), problem(unix.ENOMEM, tag), problem(unix.EINVAL, tag))
	older := tabletest.Service("older", "10.96.0.50", nil) // the ClusterIP of none
	older.Created = older.Created.Add(-time.Hour)
	table.SetService(older)
	mustHold(t, table)
	tabletest.Sync(t, table)
	checkTable(t, table)
	if p := committedPlan(table, older.Name); p == nil || len(p.Frontends) != 1 || table.Stats().Rewrites != 1 {
		t.Errorf("got plan %+v, refused %v, %d rewrites", p, refusedNames(table), table.Stats().Rewrites)
	}
}
