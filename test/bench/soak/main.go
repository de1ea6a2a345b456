// Soak runs nftproxy for an hour in a cluster that changes all the time, causes
// faults, and checks that no connection fails that no fault explains, that the
// tables are right, and that the process does not grow.
//
//	client ──► node1: proxy, killed and replaced   ◄─ watch ─┐
//	             pods a1, a2, pod1                           ├─ kube-apiserver ◄── 50 changes/s
//	           node2: proxy, runs all the time     ◄─ watch ─┘
//	             pods b1, b2, pod2
//
// Connections begin at the client, in the pods pod1 and pod2 and on the nodes.
// They lead to steady Services, where each must succeed, and to Services of
// package random. For these, Soak allows what the oracle does in any state that
// the proxy can have at the time: a sentinel for each node shows what the proxy
// has followed already.
//
// A fault explains failures only between the damage of a table and the first
// listing in which it is repaired, and on its own node. Connections through a
// node while kube-proxy runs there are judged for steady Services only. An
// endpoint that does not answer for a time explains failures of its Services
// until no endpoint is ejected. Any other ejection is a problem.
//
// At each checkpoint, changes and faults pause. The tables of both nodes must
// equal those that a fresh proxy writes in another namespace. Then all random
// Services are deleted, the tables are compared again, and the use of memory,
// files and goroutines is sampled on node2. Of these samples, the first quarter
// is the warm-up. The median of the second half of the rest must not exceed
// the mean of its first half by more than an allowance (see quantities).
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/random"
)

const about = `soak runs nftproxy under random changes, connections and faults. It fails if a connection fails that no
fault explains, if the tables are wrong, or if the process grows. It needs root.`

func main() { report.Main("soak", about, newSoak(".")) }

// soak is the benchmark.
type soak struct {
	programs             stage.Programs
	duration, interval   time.Duration
	seed                 uint64
	changes, connections int
	kinds                []string // of faults; empty for all
	logs                 string
	resetStale           bool
}

func newSoak(repository string) *soak { return &soak{programs: stage.InRepository(repository)} }

// AddFlags implements report.Benchmark.
func (s *soak) AddFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&s.duration, "duration", time.Hour, "Duration of changes, connections and faults.")
	flags.DurationVar(&s.interval, "checkpoints", 0, "Time between checkpoints (0: a thirtieth of the duration).")
	flags.Uint64Var(&s.seed, "seed", 0, "Seed of changes and faults (0: a random one).")
	flags.IntVar(&s.changes, "changes", 50, "Changes of the API per second.")
	flags.IntVar(&s.connections, "connections", 500, "Connections per second.")
	flags.StringSliceVar(&s.kinds, "faults", nil, "Kinds of faults, as in the results, or none (default: all).")
	flags.BoolVar(&s.resetStale, "reset-stale-connections", false,
		"Run nftproxy with this flag: it must reset no connection to an endpoint that lives.")
	flags.StringVar(&s.logs, "logs", "", "`FOLDER` for the logs of all programs (default: a temporary one).")
}

// run is a run of the benchmark.
type run struct {
	world       *world
	report      *report.Report
	churn       *churn
	connections *connections
	faults      *faults
	began       time.Time
	lasted      time.Duration
	samples     []sample
	explained   map[string]int // failures by kind of fault
	failures    *os.File       // a list of all
}

// Measure implements report.Benchmark.
func (s *soak) Measure(ctx context.Context, r *report.Report) (err error) {
	if s.changes < 1 || s.connections < 1 || s.duration < 10*time.Second {
		return errors.New("want at least one change and connection per second, and ten seconds")
	}
	if s.seed == 0 {
		s.seed = 1 + rand.Uint64N(1<<32)
	}
	if s.interval == 0 {
		s.interval = max(s.duration/30, 12*time.Second)
	}
	r.Say("seed %d", s.seed)
	if r.Versions, err = s.programs.Versions([]string{stage.Product, stage.Upstream}); err != nil {
		return err
	}
	w, err := s.newWorld(ctx, r.Say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	failures, err := os.Create(filepath.Join(w.dir, "failures.txt"))
	if err != nil {
		return err
	}
	defer failures.Close()
	run := &run{
		world: w, report: r, explained: map[string]int{}, failures: failures,
		churn: &churn{
			world: w, pace: perSecond(s.changes),
			g: random.New(s.seed, 0, random.Config{Endpoints: w.pods, ManyIPs: random.EnoughIPs}),
		},
		faults: &faults{
			world: w, random: rand.New(rand.NewPCG(s.seed, 1)), recoveries: map[string]report.Sample{},
		},
	}
	err = run.measure(ctx)
	run.judgeFailures()
	w.judgeEjections(run.began)
	run.fill()
	if err == nil && len(w.problems) > 0 {
		err = fmt.Errorf("%d problems, see the notes; the seed is %d", len(w.problems), s.seed)
	}
	return err
}

// measure starts the proxies, and everything that runs at the same time.
func (r *run) measure(ctx context.Context) error {
	w := r.world
	for _, n := range w.nodes {
		if err := n.start(w.soak.programs.Product); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error { return w.watchStalls(ctx) })
	for _, n := range w.nodes {
		group.Go(func() error { return n.follow(ctx) })
	}
	group.Go(func() error {
		defer stop()
		if err := r.churn.create(ctx); err != nil {
			return err
		}
		if _, err := follow(ctx, w.nodes...); err != nil {
			return err
		}
		r.began = time.Now()
		r.connections = newConnections(w)
		group.Go(func() error { return r.churn.run(ctx) })
		group.Go(func() error { return r.connections.run(ctx) })
		return r.disturb(ctx)
	})
	return group.Wait()
}

// disturb causes faults until the time is over, with checkpoints in between and
// one at the end.
func (r *run) disturb(ctx context.Context) error {
	soak := r.world.soak
	end, checked := r.began.Add(soak.duration), r.began
	for ctx.Err() == nil && time.Now().Before(end) {
		if err := r.faults.next(ctx); err != nil {
			return err
		}
		if time.Since(checked) > soak.interval {
			if err := errors.Join(r.checkpoint(ctx), r.world.Cluster.Compact(ctx)); err != nil {
				return err
			}
			checked = time.Now()
			r.judgeFailures()
		}
	}
	r.lasted = time.Since(r.began)
	return r.checkpoint(ctx)
}

// judgeFailures looks for faults that explain failed connections. No fault is
// in progress.
func (r *run) judgeFailures() {
	if r.connections == nil {
		return
	}
	for _, f := range r.connections.take() {
		text := fmt.Sprintf("%s, for %s: %v: %s", f.from.Format(clock),
			f.end.Sub(f.from).Round(time.Millisecond), f.route, f.text)
		if w := r.world.excuse(f); w != nil {
			r.explained[w.kind]++
			fmt.Fprintf(r.failures, "%s\n    explained by %s\n", text, w.kind)
			continue
		}
		r.world.problem("%s", text)
		fmt.Fprintf(r.failures, "%s\n    NOT EXPLAINED\n%s", text, f.states)
	}
}

// fill writes the report.
func (r *run) fill() {
	out := r.report
	seconds := cmp.Or(r.lasted, time.Since(r.began)).Seconds()
	r.row("Run", fmt.Sprintf("seed %d", r.world.soak.seed), report.Value("duration", report.Seconds, seconds))
	changes := r.churn.made.Load()
	r.row("Load", "changes of the API", report.Number("number", changes),
		report.Number("per second", float64(changes)/seconds))
	if r.connections != nil {
		r.fillConnections(seconds)
	}
	r.fillFaults()
	r.fillSamples()
	for _, problem := range r.world.problems {
		out.Notes = append(out.Notes, "PROBLEM: "+strings.ReplaceAll(problem, "\n", "\n    "))
	}
}

// row adds a row to a table of the report.
func (r *run) row(table, what string, figures ...report.Figure) {
	r.report.Table(table).Add(append([]report.Figure{report.Label("", what)}, figures...)...)
}

func (r *run) fillConnections(seconds float64) {
	c := r.connections
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(c.made)) {
		total += c.made[kind]
		r.row("Connections", kind, report.Number("number", c.made[kind]))
	}
	explained := 0
	for _, n := range r.explained {
		explained += n
	}
	r.row("Load", "connections", report.Number("number", total), report.Number("per second", float64(total)/seconds),
		report.Number("explained failures", explained), report.Number("of one possible state", c.exact.Load()),
		report.Number("not judged", c.unjudged.Load()))
	for _, n := range r.world.nodes {
		n.mu.Lock()
		r.row("From the answer of the API to the effect on connections, with faults", n.Name,
			report.Time("p50", n.latency, 0.5), report.Time("p99", n.latency, 0.99), report.Time("max", n.latency, 1))
		n.mu.Unlock()
	}
}

func (r *run) fillFaults() {
	for _, kind := range slices.Sorted(maps.Keys(r.faults.recoveries)) {
		sample := r.faults.recoveries[kind]
		r.row("Faults, and the time from their end until the proxy has recovered", kind,
			report.Number("number", len(sample)), report.Time("p50", sample, 0.5), report.Time("max", sample, 1),
			report.Number("explained failures", r.explained[kind]))
	}
	for _, w := range r.world.windows {
		if w.to.IsZero() || w.excused == 0 {
			continue
		}
		at := "all"
		if !w.all {
			at = w.node.Name
		}
		r.row("Windows that explain failures", fmt.Sprintf("%s %s, %s", w.from.Format(time.TimeOnly), w.kind, at),
			report.Value("length", report.Seconds, w.to.Sub(w.from).Seconds()), report.Number("failures", w.excused))
	}
}

const memoryTable = "Proxy of node2 with the steady Services"

// fillSamples adds the samples, and what grew.
func (r *run) fillSamples() {
	for _, s := range r.samples {
		var figures []report.Figure
		for _, q := range quantities() {
			figures = append(figures, report.Value(q.name, q.unit, q.of(s)))
		}
		r.row(memoryTable, s.at.Round(time.Second).String(), figures...)
	}
	const least = 4 // samples
	if len(r.samples) >= least {
		r.fillGrowth()
	}
}

// fillGrowth adds the medians of both halves of the samples, and a problem for
// each quantity that grew.
func (r *run) fillGrowth() {
	var first, second []report.Figure
	for _, q := range quantities() {
		from, to, grew := q.growth(r.samples)
		before, after := report.Value(q.name, q.unit, from), report.Value(q.name, q.unit, to)
		first, second = append(first, before), append(second, after)
		if !grew {
			continue
		}
		text := fmt.Sprintf("%s of the proxy of node2 grew from %s to %s", q.name, before, after)
		if q.name == "goroutines" {
			stack, _, _ := strings.Cut(r.samples[len(r.samples)-1].stacks, "\n\n")
			text += "; the most frequent stack:\n" + strings.TrimSpace(stack)
		}
		r.world.problem("%s", text)
	}
	r.row(memoryTable, "first half", first...)
	r.row(memoryTable, "second half", second...)
}
