// Features measures what each feature of Services costs at two sizes, one four
// times the other, to find costs that grow faster than the number of objects.
//
// It starts one child process for each feature and size, in a network namespace
// of its own. The child drives package proxier by its public API, and prints
// each measured value as a line of JSON. The parent kills a child that takes
// too long.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/test/bench/report"
)

const about = `features measures what each feature of Services costs at two sizes. It needs root.`

// childFlag makes a process a child. Its options follow as JSON.
const childFlag = "--child"

func main() {
	if len(os.Args) != 3 || os.Args[1] != childFlag {
		report.Main("features", about, new(suite))
		return
	}
	var o childOptions
	err := json.Unmarshal([]byte(os.Args[2]), &o)
	if err == nil {
		err = o.measure()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "features:", err)
		os.Exit(1)
	}
}

// suite is the benchmark.
type suite struct {
	features []string
	scale    float64
	tries    int
	budget   time.Duration // for one sync
}

// AddFlags implements report.Benchmark.
func (s *suite) AddFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.features, "features", featureNames(), "Features to measure.")
	flags.Float64Var(&s.scale, "scale", 1, "Factor for the sizes.")
	flags.IntVar(&s.tries, "tries", 10, "Number of times that each change is made; the table shows medians.")
	flags.DurationVar(&s.budget, "budget", 2*time.Minute, "Time after which a sync is given up, or changes end.")
}

// growthOfSize is the larger size of a feature divided by the smaller one.
const growthOfSize = 4

// Measure implements report.Benchmark. If a feature cannot be measured, it goes
// on with the next.
func (s *suite) Measure(ctx context.Context, r *report.Report) error {
	if s.scale <= 0 || s.tries < 1 || s.budget <= 0 {
		return errors.New("--scale, --tries and --budget must be positive")
	}
	if i := slices.IndexFunc(s.features, func(name string) bool { return featureOf(name) == nil }); i >= 0 {
		return fmt.Errorf("--features: unknown feature %q", s.features[i])
	}
	r.Notes = strings.Split(notes, "\n")
	var errs []error
	for _, name := range s.features {
		f := featureOf(name)
		small := max(1, int(float64(f.size)*s.scale)/growthOfSize)
		var sizes [2]measured
		for i, size := range []int{small, growthOfSize * small} {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			r.Say("%s: %d %s", f.name, size, f.about)
			var err error
			if sizes[i], err = s.runChild(f, size); err != nil {
				errs = append(errs, fmt.Errorf("%s, size %d: %w", f.name, size, err))
			}
		}
		fill(r.Table(f.name+": "+f.about), sizes)
	}
	return errors.Join(errs...)
}

// measured is what a child measured at one size.
type measured struct {
	size    int
	samples map[string]*samples // by the name of the figure
}

// samples are the measurements of one figure.
type samples struct {
	seconds, kernel, stale, bytes report.Sample
	exceeded                      bool // reports that the sync was given up
}

// add adds a measurement.
func (m measured) add(one sample) {
	s := m.samples[one.Name]
	if s == nil {
		s = new(samples)
		m.samples[one.Name] = s
	}
	s.seconds, s.kernel = append(s.seconds, one.Seconds), append(s.kernel, one.KernelSeconds)
	s.stale, s.bytes = append(s.stale, one.StaleFlowSeconds), append(s.bytes, one.Bytes)
}

// runChild measures a feature at one size in a new process and network
// namespace. If no figure arrives within the budget, it returns the earlier
// ones and marks the one that is missing.
func (s *suite) runChild(f *feature, size int) (measured, error) {
	m := measured{size, map[string]*samples{}}
	self, err := os.Executable()
	if err != nil {
		return m, err
	}
	options, err := json.Marshal(childOptions{f.name, size, s.tries, s.budget})
	if err != nil {
		return m, err
	}
	cmd := exec.Command(self, childFlag, string(options))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return m, err
	}
	if err := cmd.Start(); err != nil {
		return m, fmt.Errorf("start a process in a network namespace (needs root): %w", err)
	}
	var exceeded atomic.Bool
	giveUp := time.AfterFunc(s.budget, func() {
		exceeded.Store(true)
		cmd.Process.Kill()
		// Before Linux 6.6 the kernel completes its validation of the table
		// first, which can take even longer.
		time.Sleep(s.budget)
		stdout.Close() // ends the loop below
	})
	for decoder := json.NewDecoder(stdout); ; giveUp.Reset(s.budget) {
		var one sample
		if err = decoder.Decode(&one); err != nil {
			break // usually io.EOF, at the end of the process
		}
		m.add(one)
	}
	giveUp.Stop()
	if exceeded.Load() {
		if errors.Is(err, os.ErrClosed) {
			fmt.Fprintln(os.Stderr, "The kernel has not ended the last sync: the next figures are not reliable.")
		}
		go cmd.Wait()
		i := slices.IndexFunc(figureNames(), func(name string) bool { return m.samples[name] == nil })
		if i >= 0 {
			m.samples[figureNames()[i]] = &samples{seconds: report.Sample{s.budget.Seconds()}, exceeded: true}
		}
		return m, nil
	}
	if ended := cmd.Wait(); ended != nil {
		return m, fmt.Errorf("%w\n%s", ended, log.Bytes())
	}
	if err != io.EOF {
		return m, err
	}
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	m.add(sample{Name: peakMemory, Bytes: float64(peak)})
	return m, nil
}

const notes = `Each figure is shown at two sizes, total and in the kernel, with its growth: 4.0 is linear.
The mark ! means a growth of more than 6, to at least 5 ms or 1 MiB.
start: from Setup to the end of the first Sync, with an empty kernel
restart: the same with new Tables, on top of the table that is in the kernel
endpoint: a change of one Service that uses the feature; median
plain Service: a change of a Service that does not use the feature, beside the others; median
stale flows: the search for stale UDP flows that follows a Sync; median`

// fill adds a row for each figure and size to a table.
func fill(t *report.Table, sizes [2]measured) {
	for _, name := range figureNames() {
		var smaller []report.Figure
		for _, m := range sizes {
			if s := m.samples[name]; s != nil {
				figures := s.figures()
				size := report.Value("objects", report.Count, float64(m.size))
				row := []report.Figure{report.Label("figure", name), size}
				t.Add(append(row, withGrowth(smaller, figures)...)...)
				smaller = figures
			}
		}
	}
}

// figures returns the medians of a figure.
func (s *samples) figures() []report.Figure {
	total := report.Value("total", report.Seconds, s.seconds.Median())
	if bytes := s.bytes.Median(); bytes > 0 {
		total = report.Value("total", report.Bytes, bytes)
	}
	total.LowerBound = s.exceeded
	return []report.Figure{
		total, report.Value("kernel", report.Seconds, s.kernel.Median()),
		report.Value("stale flows", report.Seconds, s.stale.Median()),
	}
}

// withGrowth adds the growth to figures of the larger size. It omits figures
// that were not measured, which are 0.
func withGrowth(smaller, larger []report.Figure) (row []report.Figure) {
	const steep = 1.5 * growthOfSize
	floor := map[report.Unit]float64{report.Seconds: 0.005, report.Bytes: 1 << 20}
	for i, f := range larger {
		if f.Value == 0 {
			continue
		}
		row = append(row, f)
		if smaller != nil && smaller[i].Value > 0 && !smaller[i].LowerBound {
			growth := report.Value(f.Name+" growth", report.Factor, f.Value/smaller[i].Value)
			growth.LowerBound, growth.Marked = f.LowerBound, growth.Value > steep && f.Value >= floor[f.Unit]
			row = append(row, growth)
		}
	}
	return row
}
