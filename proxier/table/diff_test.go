package table_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// diffSteps runs a comparison.
func diffSteps(t *table.Table) (steps []keep.DiffStep, err error) {
	d, err := t.Diff()
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

// differences returns what a comparison finds.
func differences(t *table.Table) ([]string, error) {
	steps, err := diffSteps(t)
	return describe(steps...), err
}

// describe describes the differences of steps.
func describe(steps ...keep.DiffStep) (all []string) {
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

const deleteEndpoint = "delete element ip kube-proxy service-targets { 10.96.0.10 . tcp . 80 . 0:2 }"

// many passes Services and one with many endpoints, which is the last by name,
// to a Table.
func many(to cluster.Sink, services int) (large cluster.ServiceName) {
	svc := tabletest.Service("large", "10.96.0.99", nil)
	to.SetService(svc)
	for i := range 3 * keep.MaxDiffRows {
		tabletest.SetEndpoint(to, svc.Name, manyEndpoint(i))
	}
	for i := range services {
		to.SetService(tabletest.NumberedService(256 + i)) // from 10.96.1.0
	}
	return svc.Name
}

func manyEndpoint(i int) *cluster.Endpoint {
	return tabletest.Endpoint(fmt.Sprintf("10.244.%d.%d", 10+i/100, i%100))
}

// A comparison reads a limited number of rows in each step.
func TestDiffSteps(t *testing.T) {
	e := newSample(t)
	of := e.tables[0]
	many(of, 100)
	tabletest.Sync(t, of)
	if got, err := differences(of); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
	tabletest.LoadNFT(t, deleteEndpoint+`
		delete element ip kube-proxy service-targets { 10.96.0.99 . tcp . 80 . 0:2bc }
		delete element ip kube-proxy service-classes { 10.96.1.50 . tcp . 80 }
		delete element ip kube-proxy service-classes { 10.96.1.5 . tcp . 80 }
		add element ip kube-proxy cluster-ips { 10.96.7.7 }
		add element ip kube-proxy service-classes { 10.96.7.7 . tcp . 80 : 0:1 }`)
	steps, err := diffSteps(of)
	if all := describe(steps...); err != nil || len(all) != 6 {
		t.Fatalf("got %q, %v, want 6 differences", all, err)
	}
	rows := 0
	for i, step := range steps {
		if step.Rows > keep.MaxDiffRows {
			t.Errorf("step %d: got %d rows, want at most %d", i, step.Rows, keep.MaxDiffRows)
		}
		rows += step.Rows
	}
	if all := sum(maps.Values(of.Stats().Rows)); rows < all {
		t.Errorf("got %d rows, want at least %d", rows, all)
	}
}

// If another program commits during a step, the step is repeated. After an
// error, the comparison can continue.
func TestDiffDuringForeignCommits(t *testing.T) {
	e := newSample(t)
	tabletest.LoadNFT(t, deleteEndpoint)
	k, calls, failed := e.kernels[0], 0, errors.New("failed")
	k.OnRules = func() error {
		if calls++; calls == 10 || calls == 20 {
			return nft.ErrGeneration
		}
		return nil
	}
	if got, err := differences(e.tables[0]); err != nil || len(got) != 1 || calls < 21 {
		t.Errorf("got %q, %v after %d calls, want one difference", got, err, calls)
	}
	k.OnRules = func() error { return failed }
	d, err := e.tables[0].Diff()
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
	e := newSample(t)
	of, c := e.tables[0], tabletest.NewRandom(1, 2, nft.IPv4)
	const services = 2 * keep.MaxDiffRows
	large := many(of, services)
	tabletest.Sync(t, of)
	d, err := of.Diff()
	for steps, step := 1, (keep.DiffStep{}); err == nil && !step.Done; steps++ {
		if step, err = d.Next(); len(step.Differences) > 0 {
			t.Errorf("step %d: got %q", steps, describe(step))
		}
		if steps%8 > 0 { // there are some 600
			continue
		}
		tabletest.DeleteEndpoint(of, large, manyEndpoint(keep.MaxDiffRows*3/2+steps).EndpointKey)
		for range 20 {
			c.Change(of)
			of.DeleteService(tabletest.NumberedService(256 + c.IntN(services)).Name)
		}
		tabletest.Sync(t, of)
	}
	if err != nil {
		t.Fatal(err)
	}
}
