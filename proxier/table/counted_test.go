package table

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// newCounting returns a Table that counts the connections to all Services,
// after a sync with Services a and b.
func newCounting(t *testing.T) *Table {
	t.Helper()
	config := sampleConfig()
	config.Rules.ServiceMetrics = ruleset.ServiceMetricsAll
	table := newTable(t, config, nft.IPv4)
	table.SetNode(tabletest.Node())
	for i, name := range []string{"a", "b"} {
		table.SetService(countedService(name, i+1))
	}
	tabletest.Sync(t, table)
	return table
}

// countedService returns a Service with a ClusterIP and a NodePort, 10.96.1.i
// and 3000i.
func countedService(name string, i int) *cluster.Service {
	return tabletest.Service(name, fmt.Sprintf("10.96.1.%d", i), func(svc *cluster.Service) {
		svc.Ports[0].NodePort = uint16(30000 + i)
	})
}

// countedNumbers returns the numbers of the rows, by owner and key.
func countedNumbers(t *testing.T, table *Table) map[string]uint64 {
	t.Helper()
	conn, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	numbers := make(map[string]uint64)
	for _, set := range table.keeper.Program().Sets {
		if !set.Counts {
			continue
		}
		found, err := conn.Rows(table.keeper.Program(), set)
		if err != nil || len(found) == 0 {
			t.Fatalf("set %s: got rows %v, %v", set.Name, found, err)
		}
		for _, r := range found {
			numbers[r.Comment+" "+strings.Fields(r.String())[1]] = r.Packets
		}
	}
	return numbers
}

// setNumbers sets the numbers of all rows to 7, through a listing that nft
// loads.
func setNumbers(t *testing.T) {
	t.Helper()
	listing := tabletest.NFT(t, "", "list", "ruleset")
	for _, set := range []string{"service-connections", "nodeport-connections"} {
		_, after, ok := strings.Cut(listing, "set "+set+" {")
		if !ok {
			t.Fatalf("got no set %s in\n%s", set, listing)
		}
		elements, _, _ := strings.Cut(after, "}")
		listing = strings.Replace(listing, elements, strings.ReplaceAll(elements, "packets 0 ", "packets 7 "), 1)
	}
	tabletest.LoadNFT(t, "flush ruleset\n"+listing)
}

// The rows that count connections keep their numbers when their Service or
// another one changes, when the table is rewritten or repaired, and after a
// restart. A row that another Service owns starts at 0.
func TestCountedRowsKeepTheirNumbers(t *testing.T) {
	tabletest.NewNamespace(t)
	newCounting(t)
	setNumbers(t)
	table := newCounting(t)
	check := func(when string, want map[string]uint64) {
		t.Helper()
		checkTable(t, table)
		mustCheck(t, table)
		if got := countedNumbers(t, table); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", when, got, want)
		}
	}
	want := map[string]uint64{
		"ns/a:http 10.96.1.1": 7, "ns/b:http 10.96.1.2": 7, "ns/a:http tcp": 7, "ns/b:http tcp": 7,
	}
	check("restart", want)
	table.keeper.Distrust(keep.RewriteFailure, "test")
	tabletest.Sync(t, table)
	check("rewrite", want)
	tabletest.SetEndpoint(table, countedService("a", 1).Name, tabletest.Endpoint("10.244.1.1"))
	table.SetService(countedService("c", 3))
	tabletest.Sync(t, table)
	want["ns/c:http 10.96.1.3"], want["ns/c:http tcp"] = 0, 0
	check("changes of Services", want)
	tabletest.LoadNFT(t, "flush chain ip kube-proxy services")
	mustCheck(t, table)
	check("repair", want)

	// While the table is in doubt, another Service gets the addresses.
	table.keeper.Distrust(keep.RewriteFailure, "test")
	table.DeleteService(countedService("a", 1).Name)
	table.DeleteService(countedService("b", 2).Name)
	table.SetService(countedService("d", 1))
	tabletest.Sync(t, table)
	check("another owner", map[string]uint64{
		"ns/c:http 10.96.1.3": 0, "ns/c:http tcp": 0, "ns/d:http 10.96.1.1": 0, "ns/d:http tcp": 0,
	})
	if n := repairsOf(table); n != 1 {
		t.Errorf("got %d repairs, want 1", n)
	}
}

// A rewrite without the sets of connections removes them, and one with them
// adds them.
func TestServiceMetricsSetting(t *testing.T) {
	tabletest.NewNamespace(t)
	newCounting(t)
	checkTable(t, newSample(t))
	if listing := strings.Join(listTable(t, nft.IPv4), "\n"); strings.Contains(listing, "service-connections") {
		t.Errorf("without connections: got\n%s", listing)
	}
	checkTable(t, newCounting(t))
}

// With annotated, only the Services with the annotation are counted, and a
// changed annotation is effective.
func TestAnnotatedServices(t *testing.T) {
	tabletest.NewNamespace(t)
	config := sampleConfig()
	config.Rules.ServiceMetrics = ruleset.ServiceMetricsAnnotated
	table := newTable(t, config, nft.IPv4)
	table.SetNode(tabletest.Node())
	for step, metrics := range []bool{false, true, false} {
		svc := countedService("a", 1)
		svc.Metrics = metrics
		table.SetService(svc)
		tabletest.Sync(t, table)
		checkTable(t, table)
		rows := table.Stats().Rows
		want := 0
		if metrics {
			want = 1
		}
		if rows["service-connections"] != want || rows["nodeport-connections"] != want {
			t.Errorf("step %d: got rows %v, want %d", step, rows, want)
		}
	}
	if table.Stats().Rewrites != 1 {
		t.Errorf("got %d rewrites, want 1", table.Stats().Rewrites)
	}
}

// A rewrite writes the rows that count only if the kernel does not have them.
func TestRewriteSkipsCountedRows(t *testing.T) {
	tabletest.NewNamespace(t)
	table := newCounting(t)
	before := table.Stats().RowsWritten
	table.keeper.Distrust(keep.RewriteFailure, "test")
	tabletest.Sync(t, table)
	first := table.Stats().RowsWritten - before
	tabletest.LoadNFT(t, "flush set ip kube-proxy service-connections")
	before = table.Stats().RowsWritten
	table.keeper.Distrust(keep.RewriteFailure, "test")
	tabletest.Sync(t, table)
	if n := table.Stats().RowsWritten - before; n != first+2 {
		t.Errorf("got %d rows with an empty set, want %d", n, first+2)
	}
}
