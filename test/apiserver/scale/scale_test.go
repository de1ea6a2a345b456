package main

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
	"github.com/nftproxy/nftproxy/test/apiserver/benchmark/benchmarktest"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/result"
)

// TestScale runs the benchmark in short, and looks for figures where they are to be, whatever they are.
func TestScale(t *testing.T) {
	output := t.TempDir()
	o, err := parseOptions([]string{
		"--nftproxy=" + benchmarktest.BuildProxy(t), "--programs=" + benchmarktest.Repository + "/.cache/apiserver", "--output=" + output,
		"--services=1000", "--alone=100x3", "--starts=1", "--changes=1", "--calm=1s", "--budget=0s", "--rest=500ms",
		"--churn-services=1000", "--churn-rate=20", "--churn-time=1s",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.progress = t.Output()
	if err := o.run(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	r, err := result.Read(o.resultFile())
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, r)
	for _, name := range []string{"scale.txt", "change.svg", "start.svg", "cpu.svg", "memory.svg", "burst.svg", "churn.svg"} {
		if found, err := filepath.Glob(filepath.Join(output, name)); err != nil || len(found) != 1 {
			t.Errorf("%s: not written (%v)", name, err)
		}
	}
}

// checkResult wants the runs of TestScale.
func checkResult(t *testing.T, r *result.Result) {
	t.Helper()
	if r.Command == "" || r.Date.IsZero() || r.Machine.Cores == 0 || r.Machine.Kernel == "" || r.Machine.NFT == "" {
		t.Errorf("what was measured where and when is missing: %q %s %+v", r.Command, r.Date, r.Machine)
	}
	type subject struct {
		proxy               string
		services, endpoints int
		churn               bool
	}
	want := []subject{{benchmark.Upstream, 1000, 10, true}, {benchmark.Product, 1000, 10, true}, {benchmark.Product, 100, 3, false}}
	if len(r.Runs) != len(want) {
		t.Fatalf("%d runs, want %d", len(r.Runs), len(want))
	}
	for i, run := range r.Runs {
		if got := (subject{run.Proxy, run.Services, run.Endpoints, run.Churn != nil}); got != want[i] {
			t.Errorf("run %d is %+v, want %+v", i, got, want[i])
		}
		if r.Versions[run.Proxy] == "" {
			t.Errorf("no version of %s", run.Proxy)
		}
		checkRun(t, run)
	}
}

// checkRun wants all figures of a run, none of them absurd.
func checkRun(t *testing.T, r *result.Run) {
	t.Helper()
	const most = 10 * float64(time.Minute/time.Second)
	times := func(what string, n int, all ...float64) {
		for _, seconds := range all {
			if n < 1 || seconds <= 0 || seconds > most {
				t.Errorf("%s, %d Services: %s: %v of %d", r.Proxy, r.Services, what, all, n)
			}
		}
	}
	traffic := func(what string, of result.Traffic) {
		if of.Sends < 1 || of.Sent < 1 || of.Received < 1 || of.Longest <= 0 || of.Lost {
			t.Errorf("%s, %d Services: %s: netlink %+v", r.Proxy, r.Services, what, of)
		}
	}
	for what, s := range map[string]result.Start{"cold start": r.ColdStart, "restart": r.Restart} {
		times(what, s.Times.N, s.Times.P50, s.Times.P99, s.Times.Max, s.CPU)
		traffic(what, s.Traffic)
	}
	for _, kind := range result.Kinds() {
		c := r.Changes[kind]
		if c == nil {
			t.Errorf("%s, %d Services: no %s", r.Proxy, r.Services, kind)
			continue
		}
		times(string(kind), c.Times.N, c.Times.P50, c.Times.P99, c.Floor.P50, c.Floor.P99, c.CPU)
		traffic(string(kind), c.Traffic)
	}
	times("burst", r.Burst.Changes, r.Burst.Times.P50, r.Burst.Floor.P50, r.Burst.CPU)
	traffic("burst", r.Burst.Traffic)
	if c := r.Churn; c != nil {
		times("churn", c.Changes, c.Times.P50, c.Times.P99, c.Times.Max, c.Floor.P50, c.CPU, c.Percentiles[100])
		traffic("churn", c.Traffic)
	}
	for what, u := range map[string]result.Usage{"after the start": r.Memory.Start, "after changes": r.Memory.Changes} {
		if u.RSS < 1<<20 || u.HighWater < u.RSS || u.Tree < u.RSS {
			t.Errorf("%s, %d Services: memory %s: %+v", r.Proxy, r.Services, what, u)
		}
	}
}
