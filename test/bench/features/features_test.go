package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain runs a child if it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--"+childFlag {
		main()
		return
	}
	os.Exit(m.Run())
}

// runFeatures runs the program with flags, and returns its result and table.
func runFeatures(t *testing.T, flags ...string) (r *result, table string) {
	t.Helper()
	dir := t.TempDir()
	o, err := parseOptions(append([]string{"--publish=" + dir}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := o.run(&out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "features.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "features.txt"))
	if err != nil || string(written) != out.String() {
		t.Errorf("features.txt differs from the table on standard output: %v", err)
	}
	return r, out.String()
}

// Every feature is measured with the smallest sizes.
func TestFeatures(t *testing.T) {
	var running sync.WaitGroup // rather than t.Parallel: the tests mostly wait
	defer running.Wait()
	for _, f := range features() {
		test := func(t *testing.T) {
			r, table := runFeatures(t, "--features="+f.name, "--scale=0.0001", "--tries=1")
			if len(r.Features) != 1 || len(r.Features[0].Sizes) != 2 {
				t.Fatalf("got %+v, want one feature at two sizes", r.Features)
			}
			for i, s := range r.Features[0].Sizes {
				if want := []int{1, 4}[i]; s.Size != want {
					t.Errorf("size %d, want %d", s.Size, want)
				}
				for _, name := range figureNames() {
					if v := find(s.Figures, name); v.Exceeded || v.Samples != 1 || v.Seconds+v.Bytes <= 0 {
						t.Errorf("size %d: %s is %+v", s.Size, name, v)
					}
				}
				if v := find(s.Figures, replaced); f.staleFlows != (v.StaleFlowSeconds > 0) {
					t.Errorf("size %d: time for stale flows in %+v", s.Size, v)
				}
			}
			for _, want := range append(figureNames(), f.about) {
				if !strings.Contains(table, want) {
					t.Errorf("the table lacks %q:\n%s", want, table)
				}
			}
		}
		running.Go(func() { t.Run(f.name, test) })
	}
}

// A sync that takes longer than the budget is given up.
func TestBudget(t *testing.T) {
	begin := time.Now()
	_, table := runFeatures(t, "--features=services", "--scale=0.0001", "--budget=1us")
	if !strings.Contains(table, ">1e-06 s") {
		t.Errorf("no figure exceeds the budget:\n%s", table)
	}
	if spent := time.Since(begin); spent > time.Minute {
		t.Errorf("giving up took %v", spent)
	}
}

func TestOptions(t *testing.T) {
	for _, flag := range []string{"--features=none", "--scale=0", "--tries=0", "--budget=0s", "argument"} {
		if _, err := parseOptions([]string{flag}); err == nil {
			t.Errorf("%s is accepted", flag)
		}
	}
}

func TestGrowth(t *testing.T) {
	for _, tt := range []struct {
		before, after figure
		want          string
	}{
		{figure{Seconds: 0.25}, figure{Seconds: 1}, "4.0  "},
		{figure{Seconds: 0.25}, figure{Seconds: 1.5}, "6.0  "},
		{figure{Seconds: 0.25}, figure{Seconds: 4}, "16.0 !"},
		{figure{Seconds: 0.0001}, figure{Seconds: 0.004}, "40.0  "}, // below the floor
		{figure{Seconds: 4}, figure{Seconds: 120, Exceeded: true}, ">30.0 !"},
		{figure{Seconds: 120, Exceeded: true}, figure{}, "-"},
		{figure{Seconds: 1}, figure{}, "-"},
	} {
		if got := tt.before.growth(tt.after); got != tt.want {
			t.Errorf("from %+v to %+v: got %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}

func TestMedians(t *testing.T) {
	sample := func(name string, seconds, kernel float64) figure {
		return figure{Name: name, Seconds: seconds, KernelSeconds: kernel}
	}
	got := medians([]figure{sample(replaced, 1, 9), sample(start, 5, 5), sample(replaced, 3, 7), sample(replaced, 2, 8)})
	want := []figure{
		{Name: start, Seconds: 5, KernelSeconds: 5, Samples: 1},
		{Name: replaced, Seconds: 2, KernelSeconds: 8, Samples: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Changes leave a Service with as many endpoints, in ascending order, as it had.
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
