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
			found := map[string]report.Row{}
			for _, row := range r.Tables[0].Rows {
				found[row[0].Text] = row
			}
			for _, name := range figureNames() {
				row := found[name]
				want := []string{"figure", "1", "1 kernel", "4", "4 kernel", "growth", "growth kernel"}
				if name == heapInUse || name == peakMemory {
					want = []string{"figure", "1", "4", "growth"}
				}
				var got []string
				for _, f := range row {
					if got = append(got, f.Name); f.LowerBound || f.Text == "" && f.Value <= 0 {
						t.Errorf("%s: got %s %s", name, f.Name, f)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: got columns %q, want %q", name, got, want)
				}
			}
			if stale := found[replaced+": stale flows"] != nil; stale != f.staleFlows {
				t.Errorf("got stale flows %v, want %v", stale, f.staleFlows)
			}
		}
		running.Go(func() { t.Run(f.name, test) })
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
	for _, tt := range []struct {
		values   [2]float64
		exceeded [2]bool
		want     string
	}{
		{[2]float64{0.25, 1}, [2]bool{}, "250 ms, 1 s, 4.0"},
		{[2]float64{0.25, 1.5}, [2]bool{}, "250 ms, 1.5 s, 6.0"},
		{[2]float64{0.25, 4}, [2]bool{}, "250 ms, 4 s, 16.0 !"},
		{[2]float64{0.0001, 0.004}, [2]bool{}, "100 µs, 4 ms, 40.0"}, // below the floor
		{[2]float64{4, 120}, [2]bool{false, true}, "4 s, > 120 s, > 30.0 !"},
		{[2]float64{120, 0}, [2]bool{true}, "> 120 s"},
		{[2]float64{1, 0}, [2]bool{}, "1 s"},
	} {
		each, growth := figures([2]measured{{size: 1}, {size: 4}}, "", report.Seconds, tt.values, tt.exceeded)
		var got []string
		for _, f := range slices.Concat(each[0], each[1], growth) {
			got = append(got, f.String())
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%v: got %q, want %q", tt.values, text, tt.want)
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
