package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/bench/stage/stagetest"
)

// TestFleet runs a short form of the benchmark and checks that no figure is
// missing or implausible.
func TestFleet(t *testing.T) {
	f := newFleet(stagetest.Repository)
	f.programs.Product = stagetest.BuildProduct(t)
	f.calm = time.Second
	subjects := strings.Join([]string{stage.Product, plain}, ",")
	r := stagetest.Run(t, "fleet", about, f, []string{"fleet.txt"}, "--nodes=3", "--real=2", "--services=100",
		"--waves=2", "--steady=1s", "--rate=20", "--subjects="+subjects)
	const fleets = 2 + 2 // simulated, and one of each kind
	for title, want := range map[string]int{starts: 2 * fleets, steady: 1 + fleets} {
		rows := r.Table(title).Rows
		if len(rows) != want {
			t.Errorf("%s: got %d rows, want %d", title, len(rows), want)
		}
		for _, row := range rows {
			checkRow(t, title, row)
		}
	}
}

func checkRow(t *testing.T, title string, row report.Row) {
	t.Helper()
	nodes := row[0].Value
	most := map[report.Unit]float64{report.Seconds: 60, report.Bytes: 2e9, report.Count: 100}
	for _, f := range row {
		switch {
		case f.Text != "" || nodes == 0 && (f.Name == "sent" || f.Name == "nodes"):
		case f.Name == "refused" || f.Name == "ended":
			if f.Value != 0 {
				t.Errorf("%s, %v: got %s %s, want 0", title, row[:4], f.Name, f)
			}
		case f.Name == "and node": // a difference, which can be negative
		case f.Name == "CPU per node" && f.Value == 0: // less than a tick of 10 ms
		case f.Value <= 0 || f.Value > most[f.Unit]:
			t.Errorf("%s, %v: got %s %s", title, row[:4], f.Name, f)
		}
	}
}

// TestInitialEvents finds the end of the objects wherever the bytes are
// divided.
func TestInitialEvents(t *testing.T) {
	text := strings.Repeat("k8s.io/initial", 20) + endOfInitialEvents + strings.Repeat("x", 50)
	end := strings.Index(text, endOfInitialEvents) + len(endOfInitialEvents)
	for size := 1; size <= len(text); size++ {
		found := -1
		read := 0
		e := &initialEvents{complete: func() { found = read }}
		for ; read < len(text); read += size {
			e.Write([]byte(text[read:min(read+size, len(text))]))
		}
		if want := (end - 1) / size * size; found != want {
			t.Errorf("size %d: found in the bytes from %d, want %d", size, found, want)
		}
	}
}
