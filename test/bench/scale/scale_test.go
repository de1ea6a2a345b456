package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage/stagetest"
)

// TestScale runs a short form of the benchmark and checks that no figure is
// missing or implausible.
func TestScale(t *testing.T) {
	s := newScale(stagetest.Repository)
	s.programs.Product = stagetest.BuildProduct(t)
	s.starts, s.calm, s.rest = 1, time.Second, 500*time.Millisecond
	s.churnServices, s.churnRate, s.churnTime = 1000, 20, time.Second
	files := strings.Fields("scale.txt change.svg start.svg cpu.svg memory.svg burst.svg churn.svg")
	r := stagetest.Run(t, "scale", about, s, files, "--services=1000", "--alone=100x3", "--changes=1", "--budget=0s")
	if len(r.Versions) != 2 || r.Machine.NFT == "" {
		t.Errorf("got versions %v on %+v, want versions of two proxies and nft", r.Versions, r.Machine)
	}
	rows := map[string]int{"Starts and changes": 3*(3+len(kinds())) + 2, "Memory": 3*2 + 2}
	if len(r.Tables) != len(rows) {
		t.Errorf("got %d tables, want %d", len(r.Tables), len(rows))
	}
	for _, table := range r.Tables {
		if len(table.Rows) != rows[table.Title] {
			t.Errorf("%s: got %d rows, want %d", table.Title, len(table.Rows), rows[table.Title])
		}
		for _, row := range table.Rows {
			checkRow(t, table.Title, row)
		}
	}
}

func checkRow(t *testing.T, title string, row report.Row) {
	t.Helper()
	mayBeZero := []string{"slab", "above it p50"} // or less
	most := map[report.Unit]float64{report.Seconds: 600, report.Bytes: 1e10, report.Count: 1e6, report.Percent: 1e3}
	for _, f := range row {
		plausible := f.Value > 0 && f.Value <= most[f.Unit] && !f.LowerBound
		if f.Text == "" && !slices.Contains(mayBeZero, f.Name) && !plausible {
			t.Errorf("%s, %v: got %s %s", title, row[:3], f.Name, f)
		}
	}
}

// TestScenarios runs short forms of the scenarios that have phases of their
// own.
func TestScenarios(t *testing.T) {
	for name, want := range map[string][]string{
		"k126013": {"all Services created", "cold start", "restart"},
		"k129982": {"cold start", "restart", "UDP endpoint removed"},
	} {
		s := newScale(stagetest.Repository)
		s.programs.Product = stagetest.BuildProduct(t)
		s.starts, s.calm, s.rest, s.few = 1, time.Second, 500*time.Millisecond, 100
		args := []string{"--scenario=" + name, "--subjects=nftproxy", "--changes=1", "--budget=0s"}
		r, err := report.Run(t.Context(), "scale", about, s, args, t.Output())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var rows []string
		for _, row := range r.Tables[0].Rows {
			checkRow(t, name, row)
			rows = append(rows, row[2].Text)
		}
		for _, one := range want {
			if !slices.Contains(rows, one) {
				t.Errorf("%s: got rows %q, want %q", name, rows, one)
			}
		}
	}
}

func TestUnknownScenario(t *testing.T) {
	_, err := report.Run(t.Context(), "scale", about, newScale("."), []string{"--scenario=k1"}, t.Output())
	if err == nil || !strings.Contains(err.Error(), "k139513, k135639, k126013, k129982, limit") {
		t.Errorf("got %v, want an error with the names of the scenarios", err)
	}
}
