package table

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// errLost is the answer of a commit that the kernel carried out, and whose
// answer is lost.
var errLost = fmt.Errorf("test: %w", nft.ErrUnknownOutcome)

// answer makes the next commits end with these errors. Later ones succeed.
func answer(table *Table, errs ...error) *tabletest.Kernel {
	k, ok := table.keeper.Kernel().(*tabletest.Kernel)
	if !ok {
		k = injectFaults(table)
	}
	k.OnCommit = func(_ *nft.Batch, commit func() error) error {
		var err error
		if len(errs) > 0 {
			err, errs = errs[0], errs[1:]
		}
		if err == nil || err == errLost {
			return errors.Join(commit(), err)
		}
		return err
	}
	return k
}

// tagOf returns the tag of the first port of a Service.
func tagOf(table *Table, name cluster.ServiceName) uint32 {
	return table.desired.services[name].ports[0].tag
}

// newServed returns an IPv4 Table after a sync with a Service and an endpoint
// on this node.
func newServed(t *testing.T, config Config, svc *cluster.Service) *Table {
	t.Helper()
	tabletest.NewNamespace(t)
	table := newTable(t, config, nft.IPv4)
	passServed(table, svc)
	tabletest.Sync(t, table)
	return table
}

func passServed(s cluster.Sink, svc *cluster.Service) {
	s.SetNode(tabletest.Node())
	s.SetService(svc)
	tabletest.SetEndpoint(s, svc.Name, tabletest.Endpoint("10.244.0.1"))
}

// balanced returns a Service with a LoadBalancer IP.
func balanced(change func(*cluster.Service)) *cluster.Service {
	return tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) {
		s.LoadBalancerIPs = tabletest.Addrs("192.0.2.1")
		change(s)
	})
}

func listSet(t *testing.T, kind, name string) string {
	t.Helper()
	return tabletest.NFT(t, "", "list", kind, "ip", ruleset.TableName, name)
}

func mustFail(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("the sync succeeded, want an error")
	}
}

// mustHold syncs, and checks that a service port is held back.
func mustHold(t *testing.T, table *Table) {
	t.Helper()
	if err := table.Sync(); err != nil || table.UpToDate() {
		t.Errorf("got error %v, up to date %v; want that a service port waits", err, table.UpToDate())
	}
}

// The answer to a rewrite after failures is lost, and the change is taken back.
// The next sync does not leave the change in the kernel, which may not report
// numbers of rows.
func TestLostAnswerOfRewrite(t *testing.T) {
	for name, errs := range map[string][]error{
		"transient": {unix.ENOBUFS, unix.ENOBUFS, unix.ENOBUFS, errLost},
		"conflict":  {problem(unix.EEXIST, 0), errLost},
		"tagged":    {problem(unix.EEXIST, 1), errLost},
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			table := newSample(t)
			svc := tabletest.Service("new", "10.96.0.111", nil)
			table.SetService(svc)
			tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.0.111"))
			if name == "tagged" {
				errs[0] = problem(unix.EEXIST, tagOf(table, svc.Name))
			}
			answer(table, errs...).NoCounts = true
			for range len(errs) - 1 {
				if err := table.Sync(); errors.Is(err, nft.ErrUnknownOutcome) {
					break
				}
			}
			if rows := listSet(t, "map", "service-classes"); !strings.Contains(rows, "10.96.0.111") {
				t.Fatal("the test lost no answer of a rewrite")
			}
			table.DeleteService(svc.Name)
			tabletest.Sync(t, table)
			if rows := listSet(t, "map", "service-classes"); strings.Contains(rows, "10.96.0.111") {
				t.Errorf("the kernel has rows of a deleted Service:\n%s", rows)
			}
		})
	}
}

// The answer to the deletion of chains that are not used is lost. The sync
// fails, and the next one writes everything.
func TestLostAnswerOfDeletion(t *testing.T) {
	table := newServed(t, sampleConfig(), tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) {
		s.AffinityTimeout = time.Hour
	}))
	answer(table, nil, errLost)
	table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "svc"})
	mustFail(t, table.Sync())
	tabletest.Sync(t, table)
	checkTable(t, table)
}

// A service port keeps its last rules, and the kernel has no memory for them in
// a repair, once. They stay in the table.
func TestRepairWithoutMemory(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	tag := tagOf(table, web)
	answer(table, problem(unix.EINVAL, tag))
	tabletest.SetEndpoint(table, web, tabletest.Endpoint("10.244.9.9"))
	tabletest.Sync(t, table)
	answer(table, problem(unix.ENOMEM, tag), problem(unix.EINVAL, tag))
	tabletest.LoadNFT(t, "flush chain ip kube-proxy services")
	mustFail(t, table.Check())
	tabletest.Sync(t, table)
	if rows := listSet(t, "map", "service-classes"); !strings.Contains(rows, "10.96.0.10 ") {
		t.Errorf("the service port has no row:\n%s", rows)
	}
	if got := refusedNames(table); len(got) != 1 {
		t.Errorf("got refused service ports %q, want one", got)
	}
}

// The kernel refuses a change, and has no memory for what is left of the last
// rules, once. The sync fails, and the next one removes the endpoint that is
// gone.
func TestRefusedWithoutMemory(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	tag := tagOf(table, web)
	answer(table, problem(unix.EINVAL, tag), problem(unix.ENOMEM, tag), problem(unix.EINVAL, tag))
	table.SetEndpoints(web, "web", []*cluster.Endpoint{
		table.desired.services[web].endpoints[0], tabletest.Endpoint("10.244.9.9"),
	})
	mustHold(t, table)
	tabletest.Sync(t, table)
	if rows := listSet(t, "map", "service-targets"); strings.Contains(rows, "10.244.2.5 ") {
		t.Errorf("the rules lead to an endpoint that is gone:\n%s", rows)
	}
	checkTable(t, table)
}

// Even if the kernel accepts nothing that is left of the last rules, they do
// not lead to an endpoint that is gone after a sync that succeeded.
func TestNothingLeftIsAccepted(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	refused := problem(unix.EINVAL, tagOf(table, web))
	answer(table, refused, refused)
	table.SetEndpoints(web, "web", table.desired.services[web].endpoints[:1])
	tabletest.Sync(t, table)
	if rows := listSet(t, "map", "service-classes"); strings.Contains(rows, "10.96.0.10 ") {
		t.Errorf("the service port has rows:\n%s", rows)
	}
	if err := table.Resync(); err != nil {
		t.Fatal(err)
	}
	if got := refusedNames(table); len(got) != 0 {
		t.Errorf("got refused service ports %q, want none", got)
	}
	checkTable(t, table)
}

// A source range becomes wider, and the kernel has no memory, once. Clients
// that both versions allow are served.
func TestWiderSourceRange(t *testing.T) {
	svc := balanced(func(s *cluster.Service) { s.SourceRanges = tabletest.Prefixes("10.1.0.0/16") })
	table := newServed(t, sampleConfig(), svc)
	answer(table, problem(unix.ENOMEM, tagOf(table, svc.Name)))
	table.SetService(balanced(func(s *cluster.Service) { s.SourceRanges = tabletest.Prefixes("10.0.0.0/8") }))
	mustHold(t, table)
	if rows := listSet(t, "set", "firewall-sources-16"); !strings.Contains(rows, "192.0.2.1 . tcp . 80 . 10.1.0.0") {
		t.Errorf("no client may use the LoadBalancer IP:\n%s", rows)
	}
}

// An external IP becomes a LoadBalancer IP with source ranges, which the kernel
// refuses. It is not open to other clients.
func TestExternalIPBecomesRestricted(t *testing.T) {
	svc := tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) {
		s.ExternalIPs = tabletest.Addrs("192.0.2.1")
	})
	table := newServed(t, sampleConfig(), svc)
	answer(table, problem(unix.EINVAL, tagOf(table, svc.Name)))
	table.SetService(balanced(func(s *cluster.Service) { s.SourceRanges = tabletest.Prefixes("198.51.100.0/24") }))
	tabletest.Sync(t, table)
	guarded := regexp.MustCompile(`192\.0\.2\.1 .* : (200|f01):`) // see ruleset.Class
	if rows := listSet(t, "map", "service-classes"); !guarded.MatchString(rows) {
		t.Errorf("all clients may use the LoadBalancer IP:\n%s", rows)
	}
}

// The kernel has no memory for a chain that two new Services need, so the row
// of the second one leads to no chain. That is no conflict.
func TestConsequenceOfNoMemory(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	var tags []uint32
	for i := range 2 {
		svc := tabletest.Service(fmt.Sprint("svc", i), fmt.Sprint("10.96.0.10", i), nil)
		table.SetService(svc)
		for e := range 9 {
			tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint(fmt.Sprint("10.244.5.", e+1)))
		}
		tags = append(tags, tagOf(table, svc.Name))
	}
	answer(table, &nft.CommitError{Table: "t", Problems: []nft.Problem{
		{Op: "add chain", Object: "balance-9", Errno: unix.ENOMEM, Tag: tags[0]},
		{Op: "add element", Object: "service-classes", Errno: unix.ENOENT, Tag: tags[1]},
	}})
	mustHold(t, table)
	tabletest.Sync(t, table)
	stats := table.Stats()
	if stats.Rewrites != 1 || repairsOf(table) != 0 || stats.Counters.Refusals != 0 {
		t.Errorf("got %d rewrites, %d repairs, %d refusals, want 1, 0, 0",
			stats.Rewrites, repairsOf(table), stats.Counters.Refusals)
	}
	checkTable(t, table)
}

// commits records what an Observer receives about Services.
type commits []ServiceChange

func (c *commits) Synced(keep.SyncResult) {}
func (c *commits) Committed(m *Commit)    { *c = append(*c, m.Services...) }

// The LoadBalancer IP of a refused Service rejects connections, so its health
// check reports no endpoint on this node.
func TestHealthOfRefused(t *testing.T) {
	seen := new(commits)
	config := sampleConfig()
	config.Observer = seen
	tabletest.NewNamespace(t)
	table := newTable(t, config, nft.IPv4)
	passServed(table, balanced(func(s *cluster.Service) {
		s.ExternalPolicy, s.HealthCheckNodePort = cluster.PolicyLocal, 32000
	}))
	answer(table, problem(unix.EINVAL, uint32(len(table.desired.ports))))
	tabletest.Sync(t, table)
	if err := table.Resync(); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, s := range *seen {
		got = append(got, s.ReadyEndpoints)
	}
	if want := []int{0, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v endpoints on this node while refused and later, want %v", got, want)
	}
}

// The first rewrite of a new process refuses a service port with session
// affinity. When it is served, its endpoints have the ids of before.
func TestAffinityAfterRefusedRewrite(t *testing.T) {
	svc := tabletest.Service("svc", "10.96.0.1", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	newServed(t, sampleConfig(), svc)
	list := func() []string { return withoutSets(listTable(t, nft.IPv4), "reserved-ids") }
	before := list()
	second := newTable(t, sampleConfig(), nft.IPv4)
	passServed(second, svc)
	noMemory := problem(unix.ENOMEM, tagOf(second, svc.Name))
	answer(second, noMemory, noMemory)
	mustFail(t, second.Sync())
	tabletest.Sync(t, second)
	if got := refusedNames(second); len(got) != 1 {
		t.Fatalf("got refused service ports %q, want one", got)
	}
	if err := second.Resync(); err != nil {
		t.Fatal(err)
	}
	if after := list(); !slices.Equal(after, before) {
		t.Errorf("the ids changed:\n%s", difference(before, after))
	}
	if len(second.ids.known)+len(second.ids.sets.until) > 0 {
		t.Error("the ids of the earlier process are kept for ever")
	}
}

// A rewrite refuses Services that did not change, and then fails. The kernel
// keeps what it has, so the next sync begins with what is wanted: the Services
// are neither refused nor deleted.
func TestRefusedInFailedRewrite(t *testing.T) {
	const updates = 3 // the third one that fails is followed by a rewrite
	for name, faults := range map[string]func(b uint32) []error{
		"less": func(b uint32) []error { return []error{problem(unix.EINVAL, b), unix.ENOBUFS} },
		"nothing": func(b uint32) []error {
			return []error{problem(unix.EINVAL, b), problem(unix.EINVAL, b), unix.ENOBUFS}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			table := newSample(t)
			tabletest.SetEndpoint(table, lb, tabletest.Endpoint("10.244.9.9"))
			answer(table, append([]error{unix.ENOBUFS, unix.ENOBUFS, unix.ENOBUFS}, faults(tagOf(table, web))...)...)
			for range updates {
				mustFail(t, table.Sync())
			}
			table.keeper.Distrust(keep.RewriteFailure, "test")
			tabletest.Sync(t, table)
			checkTable(t, table)
			if n := failing(table); n != 0 || committedPlan(table, web) == nil {
				t.Errorf("got %d refused service ports, want none", n)
			}
		})
	}
}

// A Service replaces another one with the same ClusterIP and endpoint. Rows
// that both have are not written.
func TestSharedRowsOfReplacedService(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newSample(t)
	set := func(name string) {
		svc := tabletest.Service(name, "10.96.0.111", nil)
		table.SetService(svc)
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.9.9"))
	}
	set("before")
	tabletest.Sync(t, table)
	written := table.Stats().RowsWritten
	table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "before"})
	set("after")
	tabletest.Sync(t, table)
	if n := table.Stats().RowsWritten - written; n != 4 { // the class and the target of the frontend
		t.Errorf("got %d rows written, want 4", n)
	}
	checkTable(t, table)
}
