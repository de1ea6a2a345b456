package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// DiffSteps runs a comparison after a cursor.
func DiffSteps(table *Table, after string) (steps []keep.DiffStep, err error) {
	d, err := table.Diff(after)
	for err == nil {
		var step keep.DiffStep
		if step, err = d.Next(); err == nil {
			steps = append(steps, step)
		}
		if step.Done || len(steps) > 100_000 {
			return steps, err
		}
	}
	return nil, err
}

// diffSteps runs a comparison that must not fail.
func diffSteps(t testing.TB, table *Table, after string) []keep.DiffStep {
	t.Helper()
	steps, err := DiffSteps(table, after)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// Differences describes the differences of steps.
func Differences(steps []keep.DiffStep) (all []string) {
	for _, step := range steps {
		for _, d := range step.Differences {
			text := string(d.Kind) + " " + d.Object
			if d.Found != "" {
				text += " found " + d.Found
			}
			all = append(all, strings.TrimSpace(text+" "+d.Owner))
		}
	}
	return all
}

// checkDiff checks that a comparison finds no difference.
func checkDiff(t testing.TB, table *Table) {
	t.Helper()
	if got := Differences(diffSteps(t, table, "")); len(got) > 0 {
		t.Errorf("got differences %q", got)
	}
}

const deleteEndpoint = "delete element ip kube-proxy service-targets { 10.96.0.10 . tcp . 80 . 0:2 }"

// A comparison reads a limited number of rows in each step, and can continue
// after every cursor.
func TestDiffContinues(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	table := newSample(t)
	large := tabletest.Service("large", "10.96.0.99", nil)
	table.SetService(large)
	const endpoints = 3 * keep.MaxDiffRows
	for i := range endpoints {
		tabletest.SetEndpoint(table, large.Name, tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+i/100, i%100)))
	}
	for i := range 100 {
		table.SetService(tabletest.NumberedService(256 + i)) // 10.96.1.x
	}
	tabletest.Sync(t, table)
	checkDiff(t, table)
	tabletest.LoadNFT(t, deleteEndpoint+`
		delete element ip kube-proxy service-targets { 10.96.0.99 . tcp . 80 . 0:2bc }
		delete element ip kube-proxy service-classes { 10.96.1.50 . tcp . 80 }
		delete element ip kube-proxy service-classes { 10.96.1.5 . tcp . 80 }
		add element ip kube-proxy cluster-ips { 10.96.7.7 }
		add element ip kube-proxy service-classes { 10.96.7.7 . tcp . 80 : 0:1 }`)
	steps := diffSteps(t, table, "")
	if all := Differences(steps); len(all) != 6 {
		t.Fatalf("got %q, want 6 differences", all)
	}
	rows := 0 // large is the last Service by name
	for i, step := range steps {
		if step.Rows > keep.MaxDiffRows {
			t.Errorf("step %d: got %d rows, want at most %d", i, step.Rows, keep.MaxDiffRows)
		}
		rows += step.Rows
		rest := diffSteps(t, table, step.Cursor)
		if step.Cursor == large.Name.String() &&
			slices.ContainsFunc(rest, func(s keep.DiffStep) bool { return s.Rows > 0 }) {
			t.Errorf("after %q: got rows of Services before it", step.Cursor)
		}
		got := Differences(rest)
		if !endsWith(Differences(steps), got) || !endsWith(got, Differences(steps[i+1:])) {
			t.Errorf("after %q: got %q, want at least %q", step.Cursor, got, Differences(steps[i+1:]))
		}
	}
	if all := table.Stats().Rows; rows < sumOf(all) {
		t.Errorf("got %d rows, want at least %d", rows, sumOf(all))
	}
}

func endsWith(all, end []string) bool {
	return len(all) >= len(end) && slices.Equal(all[len(all)-len(end):], end)
}

func sumOf(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// If another program commits during a step, the step is repeated. After an
// error, the comparison can continue.
func TestDiffDuringForeignCommits(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	table := newSample(t)
	tabletest.LoadNFT(t, deleteEndpoint)
	k, calls, failed := injectFaults(table), 0, errors.New("failed")
	k.OnRules = func() error {
		if calls++; calls == 10 || calls == 20 {
			return nft.ErrGeneration
		}
		return nil
	}
	if got := Differences(diffSteps(t, table, "")); len(got) != 1 || calls < 21 {
		t.Errorf("got %q after %d calls, want one difference", got, calls)
	}
	k.OnRules = func() error { return failed }
	d, err := table.Diff("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Next(); err != failed {
		t.Errorf("got error %v, want the same as the kernel's", err)
	}
	k.OnRules = nil
	for step := (keep.DiffStep{}); !step.Done; {
		if step, err = d.Next(); err != nil {
			t.Fatal(err)
		}
	}
}

// A Service that is deleted, or changed, during a comparison is not a
// difference.
func TestDiffDuringChanges(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	table := newTable(t, sampleConfig(), nft.IPv4)
	c := tabletest.NewRandom(1, 2, nft.IPv4)
	tabletest.PassSample(table)
	for i := range 2 * keep.MaxDiffRows {
		table.SetService(tabletest.NumberedService(i))
	}
	large := tabletest.Service("large", "10.97.0.1", nil)
	table.SetService(large)
	endpoint := func(i int) *cluster.Endpoint {
		return tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+i/100, i%100))
	}
	for i := range 3 * keep.MaxDiffRows {
		tabletest.SetEndpoint(table, large.Name, endpoint(i))
	}
	tabletest.Sync(t, table)
	d, err := table.Diff("")
	if err != nil {
		t.Fatal(err)
	}
	for steps := 1; ; steps++ {
		step, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(step.Differences) > 0 {
			t.Errorf("step %d: got %q", steps, Differences([]keep.DiffStep{step}))
		}
		if step.Done {
			break
		}
		if steps%8 > 0 { // there are some 600
			continue
		}
		tabletest.DeleteEndpoint(table, large.Name, endpoint(keep.MaxDiffRows*3/2+steps).EndpointKey)
		for range 20 {
			c.Change(table)
			table.DeleteService(cluster.ServiceName{Namespace: "bench",
				Name: fmt.Sprint("service-", c.IntN(2*keep.MaxDiffRows))})
		}
		tabletest.Sync(t, table)
	}
}
