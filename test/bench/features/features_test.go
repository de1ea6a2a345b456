package main

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/bench/report"
)

// TestMain runs a child if it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childFlag {
		main()
		return
	}
	os.Exit(m.Run())
}

func runFeatures(t *testing.T, flags ...string) (r *report.Report, text string) {
	t.Helper()
	var out strings.Builder
	r, err := report.Run(t.Context(), "features", about, new(suite), flags, &out)
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

// Every feature is measured with the smallest sizes.
func TestFeatures(t *testing.T) {
	var running sync.WaitGroup // rather than t.Parallel: the tests mostly wait
	defer running.Wait()
	for _, f := range features() {
		test := func(t *testing.T) {
			r, _ := runFeatures(t, "--features="+f.name, "--scale=0.0001", "--tries=1")
			if len(r.Tables) != 1 {
				t.Fatalf("got %d tables, want 1", len(r.Tables))
			}
			rows := r.Tables[0].Rows
			if len(rows) != 2*len(figureNames()) {
				t.Fatalf("got %d rows, want all figures at two sizes", len(rows))
			}
			for i, row := range rows {
				checkRow(t, row, figureNames()[i/2], []float64{1, 4}[i%2], f.staleFlows)
			}
		}
		running.Go(func() { t.Run(f.name, test) })
	}
}

func checkRow(t *testing.T, row report.Row, name string, size float64, staleFlows bool) {
	t.Helper()
	found := map[string]bool{}
	for _, f := range row {
		found[f.Name] = true
		if f.LowerBound || f.Text == "" && f.Value <= 0 {
			t.Errorf("%s: got %s %s", name, f.Name, f)
		}
	}
	memory := name == heapInUse || name == peakMemory
	if row[0].Text != name || row[1].Value != size || found["kernel"] == memory || found["total growth"] != (size > 1) {
		t.Errorf("got %v, want %s at size %v", row, name, size)
	}
	if !memory && name == replaced && found["stale flows"] != staleFlows {
		t.Errorf("%s: got stale flows %v, want %v", name, found["stale flows"], staleFlows)
	}
}

// A sync that takes longer than the budget is given up.
func TestBudget(t *testing.T) {
	begin := time.Now()
	_, text := runFeatures(t, "--features=services", "--scale=0.0001", "--budget=1us")
	if !strings.Contains(text, "> 1 µs") {
		t.Errorf("no figure exceeds the budget:\n%s", text)
	}
	if spent := time.Since(begin); spent > time.Minute {
		t.Errorf("giving up took %v", spent)
	}
}

func TestOptions(t *testing.T) {
	for _, flag := range []string{"--features=none", "--scale=0", "--tries=0", "--budget=0s"} {
		if _, err := report.Run(t.Context(), "features", "", new(suite), []string{flag}, t.Output()); err == nil {
			t.Errorf("%s is accepted", flag)
		}
	}
}

func TestGrowth(t *testing.T) {
	seconds := func(value float64) report.Figure { return report.Value("total", report.Seconds, value) }
	exceeded := func(value float64) report.Figure {
		f := seconds(value)
		f.LowerBound = true
		return f
	}
	for _, tt := range []struct {
		before, after report.Figure
		want          string
	}{
		{seconds(0.25), seconds(1), "1 s 4.0"},
		{seconds(0.25), seconds(1.5), "1.5 s 6.0"},
		{seconds(0.25), seconds(4), "4 s 16.0 !"},
		{seconds(0.0001), seconds(0.004), "4 ms 40.0"}, // below the floor
		{seconds(4), exceeded(120), "> 120 s > 30.0 !"},
		{exceeded(120), seconds(130), "130 s"},
		{seconds(0), seconds(1), "1 s"},
		{seconds(1), seconds(0), ""},
	} {
		var got []string
		for _, f := range withGrowth([]report.Figure{tt.before}, []report.Figure{tt.after}) {
			got = append(got, f.String())
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%v to %v: got %q, want %q", tt.before, tt.after, text, tt.want)
		}
	}
}

// Changes leave a Service with as many endpoints, in ascending order, as it
// had.
func TestChangesKeepTheNumberOfEndpoints(t *testing.T) {
	w := newWorkload(&feature{shape: services(sliceSize + 1)}, 2)
	if plain := w.services[2].slices; len(plain) != 1 || len(plain[0]) != plainEndpoints {
		t.Errorf("endpoints of the plain Service: %v", plain)
	}
	s := w.services[1]
	for range 2 * sliceSize {
		more, other := w.next(), w.next()
		s.add(more)
		s.replace(s.victim, other)
		s.remove(other)
		s.victim = more
	}
	all := slices.Concat(s.slices...)
	local := slices.DeleteFunc(slices.Clone(all), func(e int) bool { return e%localEvery != 0 })
	if len(all) != sliceSize+1 || len(local) != sliceSize/localEvery+1 {
		t.Errorf("%d endpoints, %d on this node: %v", len(all), len(local), all)
	}
	for _, slice := range s.slices {
		if !slices.IsSorted(slice) || len(slice) > sliceSize {
			t.Errorf("EndpointSlice of %d endpoints: %v", len(slice), slice)
		}
	}
}
