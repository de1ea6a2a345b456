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
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// failing returns the number of service ports that could not be written as they
// are wanted.
func failing(table *Table) (n int) {
	for range table.keeper.Failing() {
		n++
	}
	return n
}

// writesLess reports whether the next transaction writes less of a service port
// than is wanted, writesNothing whether it writes nothing of it.
func writesLess(p *portState) bool {
	_, less := p.kept.Less()
	return less
}

func writesNothing(p *portState) bool {
	next, _ := p.kept.Next(func(keep.Content, bool) (keep.Content, error) { return content{}, nil })
	return next == p.kept.Have()
}

// plans returns the plans that were committed.
func plans(table *Table) map[*portState]*ruleset.Plan {
	all := make(map[*portState]*ruleset.Plan)
	for _, p := range table.desired.ports {
		if plan := p.plan(); plan != nil {
			all[p] = plan
		}
	}
	return all
}

// refusedNames returns the names of the refused service ports, sorted.
func refusedNames(table *Table) []string {
	var names []string
	for o := range table.keeper.Failing() {
		if _, refused := o.Kept().Refused(); refused {
			names = append(names, o.String())
		}
	}
	slices.Sort(names)
	return names
}

// refusedService returns a Service that the kernel refuses: chains of service
// ports with session affinity contain the name of the Service, and the kernel
// limits names of chains to 255 bytes.
func refusedService() *cluster.Service {
	return tabletest.Service(strings.Repeat("x", 300), "10.96.0.66", func(s *cluster.Service) {
		s.AffinityTimeout = time.Hour
	})
}

// A service port that the kernel refuses rejects connections, and all others
// are served. One event is recorded. When the Service becomes valid, it is
// served.
func TestRefusedService(t *testing.T) {
	tabletest.NewNamespace(t)
	config, recorded := recordEvents()
	table := newTable(t, config, nft.IPv4)
	table.SetNode(tabletest.Node())
	set := func(svc *cluster.Service, endpoint string) {
		table.SetService(svc)
		tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint(endpoint))
	}
	step := func(name string, want ...string) {
		t.Helper()
		checkTable(t, table)
		if got := refusedNames(table); !slices.Equal(got, want) {
			t.Errorf("%s: got refused service ports %q, want %q", name, got, want)
		}
		if got := recorded.Of(cluster.ReasonRefused); len(got) != 1 || table.Stats().Refusals != 1 {
			t.Errorf("%s: got events %q and %d refusals, want one", name, got, table.Stats().Refusals)
		}
	}
	for i := range 5 {
		set(tabletest.Service(fmt.Sprint("valid", i), fmt.Sprint("10.96.0.", i), nil), fmt.Sprint("10.244.0.", i))
	}
	refused := refusedService()
	set(refused, "10.244.0.66")
	tabletest.Sync(t, table)
	name := refused.Name.WithPort("http")
	step("first sync", name)

	set(tabletest.Service("late", "10.96.0.77", nil), "10.244.0.77")
	tabletest.Sync(t, table)
	step("another Service is added", name)

	rewrites := table.Stats().Rewrites
	tabletest.SetEndpoint(table, refused.Name, tabletest.Endpoint("10.244.0.67"))
	tabletest.Sync(t, table)
	step("the refused Service changes", name)
	if err := table.Resync(); err != nil {
		t.Fatal(err)
	}
	step("resync", name)
	if got := table.Stats().Rewrites - rewrites; got != 0 {
		t.Errorf("retries: got %d rewrites, want 0", got)
	}

	valid := *refused
	valid.AffinityTimeout = 0
	table.SetService(&valid)
	tabletest.Sync(t, table)
	step("the Service becomes valid")
	rows := tabletest.NFT(t, "", "list", "map", "ip", ruleset.TableName, "service-classes")
	if !strings.Contains(rows, "10.96.0.66 . ") {
		t.Errorf("the valid Service has no row:\n%s", rows)
	}
}

// Resync tries refused service ports again.
func TestResyncRetriesRefused(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	table.SetService(svc)
	tabletest.SetEndpoint(table, svc.Name, tabletest.Endpoint("10.244.0.1"))
	refuse := true
	port := table.desired.services[svc.Name].ports[0]
	injectFaults(table).OnCommit = func(_ *nft.Batch, commit func() error) error {
		if !refuse || writesLess(port) {
			return commit()
		}
		problem := nft.Problem{Op: "add element", Tag: port.tag, Errno: unix.ENOMEM}
		return &nft.CommitError{Table: "t", Problems: []nft.Problem{problem}}
	}
	resync := func(want ...string) {
		t.Helper()
		if err := table.Resync(); err != nil {
			t.Fatal(err)
		}
		if got := refusedNames(table); !slices.Equal(got, want) {
			t.Errorf("got refused service ports %q, want %q", got, want)
		}
		checkTable(t, table)
	}
	if err := table.Sync(); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("got %v, want %v", err, unix.ENOMEM)
	}
	tabletest.Sync(t, table)
	resync("ns/svc:http")
	refuse = false
	resync()
}

// A refused service port that changes is tried again also by a sync that writes
// the whole table.
func TestRewriteRetriesRefused(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	refused := refusedService()
	table.SetService(refused)
	tabletest.SetEndpoint(table, refused.Name, tabletest.Endpoint("10.244.0.66"))
	tabletest.Sync(t, table)
	if got := refusedNames(table); len(got) != 1 {
		t.Fatalf("got refused service ports %q, want one", got)
	}
	valid := *refused
	valid.AffinityTimeout = 0
	table.SetService(&valid)
	table.keeper.Distrust(keep.RewriteFailure, "test")
	tabletest.Sync(t, table)
	if got := refusedNames(table); len(got) != 0 {
		t.Errorf("got refused service ports %q, want none", got)
	}
	checkTable(t, table)
}

// A Service with more endpoints than a table of hashes can have is refused,
// with an event. What is left of its rules allows no client that it does not
// allow any more, and its endpoints still serve.
func TestTooManyHashedEndpoints(t *testing.T) {
	config, recorded := recordEvents()
	ranges := func(cidr string) *cluster.Service {
		return balanced(func(s *cluster.Service) {
			s.InternalPolicy, s.ExternalPolicy = cluster.PolicyLocal, cluster.PolicyLocal
			s.Balance = cluster.BalanceSourceHash
			s.SourceRanges, s.Ports[0].Protocol = tabletest.Prefixes(cidr), cluster.UDP
		})
	}
	svc := ranges("203.0.113.0/24")
	table := newServed(t, config, svc)
	var endpoints []*cluster.Endpoint
	for i := range 1<<16 + 1 {
		e := tabletest.Endpoint(fmt.Sprintf("10.%d.%d.%d", 100+i>>16, i>>8&0xff, i&0xff))
		e.Ports[0].Protocol = cluster.UDP
		endpoints = append(endpoints, e)
	}
	table.SetEndpoints(svc.Name, "s", endpoints[:1])
	tabletest.Sync(t, table)
	table.SetEndpoints(svc.Name, "s", endpoints)
	table.SetService(ranges("198.51.100.0/24"))
	tabletest.Sync(t, table)
	if got, want := recorded.Of(cluster.ReasonNotServed), []string{"ns/svc"}; !slices.Equal(got, want) {
		t.Errorf("got events about %q, want %q", got, want)
	}
	if text := tabletest.NFT(t, "", "list", "table", "ip", "kube-proxy"); strings.Contains(text, "203.0.113.0") {
		t.Error("clients that the Service does not allow any more are allowed")
	}
	if plan := committedPlan(table, svc.Name); len(plan.Cluster) != 1 || len(plan.Serving) != len(endpoints) {
		t.Errorf("got %d endpoints, %d serving, want 1 and %d", len(plan.Cluster), len(plan.Serving), len(endpoints))
	}
	checkTable(t, table)
	table.SetEndpoints(svc.Name, "s", endpoints[:1])
	tabletest.Sync(t, table)
	if got := refusedNames(table); len(got) != 0 {
		t.Errorf("got refused service ports %q, want none", got)
	}
	checkTable(t, table)
}
