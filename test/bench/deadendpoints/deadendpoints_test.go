package main

import (
	"testing"

	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/bench/stage/stagetest"
)

// TestDeadEndpoints runs a short form of the benchmark. Without a fault, and
// with a dead endpoint in a Service of ten, no connect over TCP may fail.
func TestDeadEndpoints(t *testing.T) {
	b := &bench{programs: stage.InRepository(stagetest.Repository)}
	b.programs.Product = stagetest.BuildProduct(t)
	r := stagetest.Run(t, "deadendpoints", about, b, []string{"deadendpoints.txt"},
		"--subjects="+stage.Product, "--rate=10", "--duration=3s", "--dead=0,1",
		"--idle=3s", "--settle=0", "--connections=100", "--faults=1", "--floods=1000")
	if len(r.Tables) != 5 {
		t.Fatalf("got %d tables, want 5", len(r.Tables))
	}
	for i, want := range []int{2, 3, 2} {
		if table := r.Tables[2+i]; len(table.Rows) != want {
			t.Errorf("%s: got %d rows, want %d", table.Title, len(table.Rows), want)
		}
	}
	for i, table := range r.Tables[:2] {
		if len(table.Rows) != 3 {
			t.Fatalf("%s: got %d rows, want 3", table.Title, len(table.Rows))
		}
		for k, row := range table.Rows {
			connects, failed := row[2], row[3]
			if connects.Value < 20 || failed.Value > 0 && (i == 0 || k < 2) {
				t.Errorf("%s: got %v", table.Title, row)
			}
		}
	}
}
