package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
)

// run measures one proxy at one size.
type run struct {
	*world
	scale   *scale
	report  *report.Report
	proxy   string
	size    size
	subject *subject

	watcher  *watcher // see listening
	listener *listener
}

// measure adds rows to all tables and points to all plots.
func (r *run) measure(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.subject.remove()) }()
	for _, phase := range []func(context.Context) error{
		r.creations, r.coldStarts, r.restarts, r.changes, r.bursts, r.churn, r.removal,
	} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return r.subject.stop()
}

// repeat calls f up to n times, but not after the budget is spent once there
// are as many calls as needed.
func (r *run) repeat(n, needed int, f func(i int) error) error {
	began := time.Now()
	for i := range n {
		if i >= needed && time.Since(began) > r.scale.budget {
			break
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// start starts the proxy and waits until it has programmed all Services, and
// temporary ones.
func (r *run) start(ctx context.Context, to *series, temporary ...netip.AddrPort) error {
	calm, err := stage.AwaitCalm(ctx, r.scale.calm)
	if err != nil {
		return err
	}
	if !calm {
		r.report.Say("%s starts although the machine has other work", r.proxy)
	}
	if err := r.subject.start(ctx); err != nil {
		return err
	}
	process := r.subject.Process
	programmed, err := r.subject.AwaitProgrammed(append(stage.Frontends(r.services), temporary...))
	if err != nil {
		return err
	}
	to.latency.Add(programmed.Sub(process.Began))
	if err := process.Pause(r.scale.rest); err != nil {
		return err
	}
	return r.subject.charge(to, 0)
}

// newSubject replaces the node with an empty one.
func (r *run) newSubject(ctx context.Context) error {
	err := r.subject.remove()
	r.subject = nil
	if err != nil {
		return err
	}
	n, err := r.NewNode(ctx, r.proxy)
	if err == nil {
		r.subject = &subject{Node: n, tracing: r.tracing}
	}
	return err
}

// creations creates all Services at once, as fast as etcd can, while the proxy
// runs.
func (r *run) creations(ctx context.Context) error {
	if !r.size.atOnce {
		return nil
	}
	var empty, s series
	err := r.newSubject(ctx)
	if err == nil {
		err = r.start(ctx, &empty)
	}
	if err != nil {
		return err
	}
	copier, err := r.CreateFirst(ctx, 0, r.addrs(0))
	if err != nil {
		return err
	}
	all := make([]change, r.size.services-1)
	for i := range all {
		service := 1 + i
		all[i] = change{service, []netip.Addr{stage.Frontend(service).Addr()}, func(ctx context.Context) error {
			return copier.Create(ctx, service, r.addrs(service))
		}}
	}
	err = r.listening(ctx, func() error { return r.measureChanges(ctx, &s, all) })
	if err != nil {
		return err
	}
	r.services = r.size.services
	r.add("all Services created", &s)
	return r.addMemory("after creation")
}

// coldStarts starts the proxy in empty namespaces. The last one stays, with its
// table.
func (r *run) coldStarts(ctx context.Context) error {
	var s series
	var slabs float64
	var memory []report.Figure
	err := r.repeat(r.scale.starts, 1, func(int) error {
		if err := r.newSubject(ctx); err != nil {
			return err
		}
		before, errBefore := slab()
		err := r.start(ctx, &s)
		if err != nil {
			return err
		}
		memory, err = r.subject.memory()
		err = errors.Join(err, r.subject.stop())
		after, errAfter := slab()
		slabs = max(slabs, after-before) // the largest growth: tables reuse slabs that earlier ones left
		return errors.Join(err, errBefore, errAfter)
	})
	if err == nil {
		r.add("cold start", &s)
		r.addRow("Memory", "after cold start", append(memory, report.Value("slab", report.Bytes, slabs)))
	}
	return err
}

// restarts starts the proxy on its own table, which lacks a new Service. The
// proxy runs afterwards.
func (r *run) restarts(ctx context.Context) error {
	var s series
	var temporary []netip.AddrPort
	err := r.repeat(r.scale.starts, 1, func(int) error {
		if err := r.subject.stop(); err != nil {
			return err
		}
		service, err := r.createExtraSlice(ctx)
		if err = errors.Join(err, r.creation(service)(ctx)); err != nil {
			return err
		}
		temporary = append(temporary, stage.Frontend(service))
		return r.start(ctx, &s, temporary...)
	})
	for i := range temporary {
		service := stage.MaxServices + r.extra - 1 - i
		err = errors.Join(err, r.deletion(service)(ctx), r.deleteSlice(ctx, service))
	}
	if err == nil {
		r.add("restart", &s)
	}
	return err
}

// kinds returns the kinds of single changes.
func kinds() []string {
	return []string{"endpoint added", "endpoint removed", "endpoint replaced", "service added", "service deleted"}
}

// changes makes changes of every kind, one at a time.
func (r *run) changes(ctx context.Context) error {
	const needed = 10 // of each kind, even if the budget is spent
	collected := make([]series, len(kinds()))
	var extra []int
	for range r.scale.changes {
		service, err := r.createExtraSlice(ctx) // proxies ignore endpoints without a Service
		if err != nil {
			return err
		}
		extra = append(extra, service)
	}
	err := r.listening(ctx, func() error {
		return r.repeat(len(extra), needed, func(i int) error {
			for k, c := range r.oneOfEach(i, extra[i]) {
				if err := r.measureChanges(ctx, &collected[k], []change{c}); err != nil {
					return fmt.Errorf("%s: %w", kinds()[k], err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	for k, kind := range kinds() {
		s := &collected[k]
		r.add(kind, s)
		if kind == "endpoint replaced" {
			title := "One endpoint replaced: API write to commit, p50"
			r.line("change", title, report.Seconds, r.proxy, s.latency.Median())
			r.line("change", title, report.Seconds, "watch alone", s.floor.Median())
			r.line("cpu", "CPU time for one endpoint replaced", report.Seconds, r.proxy, s.cpu.Mean())
		}
	}
	for _, service := range extra {
		err = errors.Join(err, r.deleteSlice(ctx, service))
	}
	return err
}

// bursts changes 1 % of the Services at once, several times.
func (r *run) bursts(ctx context.Context) error {
	const bursts = 5
	var s series
	size := max(r.services/100, 1)
	err := r.listening(ctx, func() error {
		return r.repeat(bursts, 1, func(i int) error { return r.measureChanges(ctx, &s, r.replacements(i*size, size)) })
	})
	if err != nil {
		return err
	}
	r.add(fmt.Sprintf("1 %% of the Services at once (%d)", size), &s)
	title := "1 % of the Services changed at once: until all are committed, p50"
	r.line("burst", title, report.Seconds, r.proxy, s.latency.Median())
	r.line("burst", title, report.Seconds, "watch alone", s.floor.Median())
	memory, err := r.subject.memory()
	if err != nil {
		return err
	}
	r.addRow("Memory", "after changes", memory)
	title = "Memory after changes (VmRSS), and the most with children"
	r.line("memory", title, report.Bytes, r.proxy+", process", memory[0].Value)
	r.line("memory", title, report.Bytes, r.proxy+", with children", memory[2].Value)
	return nil
}

// churn replaces endpoints at a constant rate, at one size.
func (r *run) churn(ctx context.Context) error {
	if r.services != r.scale.churnServices || r.scale.scenario != "" {
		return nil
	}
	var s series
	var took time.Duration
	every := time.Second / time.Duration(r.scale.churnRate)
	changes := r.replacements(0, min(int(r.scale.churnTime/every), r.services))
	err := r.listening(ctx, func() error {
		return r.subject.measure(&s, func() (err error) {
			began := time.Now()
			s.latency, s.floor, err = r.perform(ctx, changes, every)
			took = time.Since(began)
			return err
		})
	})
	if err != nil {
		return err
	}
	core := report.Value("of one core", report.Percent, 100*s.cpu.Mean()/took.Seconds())
	r.add(fmt.Sprintf("churn of %d changes/s", r.scale.churnRate), &s, core)
	p := r.report.Plot(report.Plot{
		Name: "churn", XLabel: "API write to commit", YLabel: "%", X: report.Seconds, Y: report.Percent,
		Title: fmt.Sprintf("%d changes a second, %d Services: part committed within a time",
			r.scale.churnRate, r.services),
	})
	for percent := range 101 {
		p.Line(r.proxy, s.latency.Quantile(float64(percent)/100), float64(percent))
	}
	return r.addMemory("after churn")
}

func (r *run) addMemory(when string) error {
	memory, err := r.subject.memory()
	r.addRow("Memory", when, memory)
	return err
}

// add adds a row for a series.
func (r *run) add(what string, s *series, more ...report.Figure) {
	seconds := func(name string, value float64) {
		if value != 0 {
			more = append(more, report.Value(name, report.Seconds, value))
		}
	}
	sends := report.Number("sends", s.sends.Mean())
	sends.LowerBound = s.lost
	seconds("p50", s.latency.Median())
	seconds("p99", s.latency.Quantile(0.99))
	seconds("max", s.latency.Quantile(1))
	seconds("CPU", s.cpu.Mean())
	seconds("watch alone p50", s.floor.Median())
	seconds("watch alone p99", s.floor.Quantile(0.99))
	seconds("above it p50", s.above.Median())
	seconds("longest transaction", slices.Max(s.longest))
	more = append(more, sends, report.Value("sent", report.Bytes, s.sent.Mean()),
		report.Value("received", report.Bytes, s.received.Mean()), report.Number("n", len(s.latency)))
	r.addRow("Starts and changes", what, more)
	if len(s.floor) == 0 {
		r.line("start", "Start until all rows exist, p50", report.Seconds, r.proxy+", "+what, s.latency.Median())
	}
}

func (r *run) addRow(table, what string, figures []report.Figure) {
	row := append([]report.Figure{
		report.Label("services", r.size.String()), report.Label("proxy", r.proxy), report.Label("", what),
	}, figures...)
	r.report.AddRow(table, row...)
}

// line adds a point to a plot over the number of Services, unless the number of
// endpoints differs from the first size, or a scenario has one size.
func (r *run) line(name, title string, unit report.Unit, line string, y float64) {
	if r.endpoints == r.scale.sizes[0].endpoints && r.scale.scenario == "" {
		p := r.report.Plot(report.Plot{Name: name, Title: title, XLabel: "Services", X: report.Count, Y: unit})
		p.Line(line, float64(r.services), y)
	}
}
