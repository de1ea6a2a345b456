package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
)

// change is a change of one Service or of its endpoints.
type change struct {
	service int
	addrs   []netip.Addr // the proxy writes or deletes something with one of these
	apply   func(context.Context) error
}

// rig measures the latency of changes.
type rig struct {
	*run
	watcher  *watcher
	listener *listener
}

// withRig calls f while there is a listener and a watcher. There is none during
// starts: it makes large transactions slower.
func (r *run) withRig(ctx context.Context, f func(*rig) error) (err error) {
	rig := &rig{run: r}
	if rig.watcher, err = r.watchFrom(ctx, r.subject.Pod.Namespace); err != nil {
		return err
	}
	defer rig.watcher.close()
	if rig.listener, err = listen(r.subject.Pod.Fd()); err != nil {
		return err
	}
	err = f(rig)
	return errors.Join(err, rig.listener.close())
}

// perform makes changes, all at once (64 at a time) or one after the other in
// intervals, and waits until all are committed. It returns the times of each
// until the commit and until the event.
func (r *rig) perform(ctx context.Context, changes []change, every time.Duration) (latency, floor report.Sample, err error) {
	began := make([]time.Time, len(changes))
	commits, events := make([]<-chan time.Time, len(changes)), make([]<-chan time.Time, len(changes))
	for i, c := range changes {
		var keys [][4]byte
		for _, addr := range c.addrs {
			keys = append(keys, addr.As4())
		}
		commits[i], events[i] = r.listener.expect(keys...), r.watcher.expect(stage.ServiceName(c.service))
	}
	running := r.subject.Process.Running
	group, writing := errgroup.WithContext(ctx)
	if every == 0 {
		group.SetLimit(64)
	}
	first := time.Now()
	for i, c := range changes {
		began[i] = first
		if every > 0 {
			select {
			case <-running.Done():
				return nil, nil, context.Cause(running)
			case <-writing.Done():
				return nil, nil, context.Cause(writing)
			case <-time.After(time.Until(first.Add(time.Duration(i) * every))):
			}
			began[i] = time.Now()
		}
		group.Go(func() error { return c.apply(writing) })
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	timeout := time.After(5 * time.Minute)
	for i, c := range changes {
		for _, arrival := range []struct {
			at <-chan time.Time
			to *report.Sample
		}{{commits[i], &latency}, {events[i], &floor}} {
			select {
			case at := <-arrival.at:
				arrival.to.Add(at.Sub(began[i]))
			case <-running.Done():
				return nil, nil, context.Cause(running)
			case <-timeout:
				return nil, nil, fmt.Errorf("%s: no commit or event of a change of %s", r.proxy, stage.ServiceName(c.service))
			}
		}
	}
	return latency, floor, nil
}

// one makes one change, and waits until the proxy is idle again.
func (r *rig) one(ctx context.Context, to *series, c change) error {
	return r.subject.measure(to, func() error {
		latency, floor, err := r.perform(ctx, []change{c}, 0)
		if err != nil {
			return err
		}
		to.latency, to.floor = append(to.latency, latency...), append(to.floor, floor...)
		to.above = append(to.above, latency[0]-floor[0])
		return r.subject.settle()
	})
}

// kinds returns the kinds of changes.
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
	if err := r.subject.settle(); err != nil {
		return err
	}
	err := r.withRig(ctx, func(rig *rig) error {
		return r.scale.repeat(len(extra), needed, func(i int) error {
			for k, c := range r.oneOfEach(i, extra[i]) {
				if err := rig.one(ctx, &collected[k], c); err != nil {
					return fmt.Errorf("%s: %w", kinds()[k], err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, service := range extra {
		if err := r.deleteSlice(ctx, service); err != nil {
			return err
		}
	}
	for k, kind := range kinds() {
		r.addChange(kind, &collected[k])
	}
	return nil
}

// oneOfEach returns a change of every kind. Afterwards there are as many
// Services and endpoints as before.
func (r *run) oneOfEach(i, extra int) []change {
	service := spread(i, r.services)
	fresh, other := r.freshAddr(), r.freshAddr()
	more := append(r.addrs(service), fresh)
	less := more[1:]
	replaced := append([]netip.Addr{other}, less[1:]...)
	r.changed[service] = replaced
	update := func(addrs []netip.Addr) func(context.Context) error {
		return func(ctx context.Context) error { return r.updateSlice(ctx, service, addrs) }
	}
	vip := []netip.Addr{stage.Frontend(extra).Addr()}
	return []change{
		{service, []netip.Addr{fresh}, update(more)},
		// Some proxies delete the row of that endpoint, others rewrite the remaining ones.
		{service, more, update(less)},
		{service, []netip.Addr{other}, update(replaced)},
		{extra, vip, func(ctx context.Context) error { return r.createService(ctx, extra) }},
		{extra, vip, func(ctx context.Context) error { return r.deleteService(ctx, extra) }},
	}
}

func (r *run) addChange(kind string, s *series) {
	r.add("One change, API write to commit", report.Label("change", kind),
		seconds("p50", s.latency.Median()), seconds("p99", s.latency.Quantile(0.99)),
		seconds("watch alone p50", s.floor.Median()), seconds("watch alone p99", s.floor.Quantile(0.99)),
		seconds("above it p50", s.above.Median()), seconds("CPU", s.cpu.Mean()),
		report.Value("sent", report.Bytes, s.sent.Mean()), report.Value("received", report.Bytes, s.received.Mean()),
		count("n", float64(len(s.latency))))
	if kind == "endpoint replaced" {
		p := r.line("change", "One endpoint replaced: API write to commit, p50", report.Seconds, "", s.latency.Median())
		r.floor(p, s)
		r.line("cpu", "CPU time for one endpoint replaced", report.Seconds, "", s.cpu.Mean())
	}
}

// replacements returns changes that replace the first endpoint of some Services.
func (r *run) replacements(first, n int) (all []change) {
	for i := range n {
		service := spread(first+i, r.services)
		addrs := r.addrs(service)
		addrs[0] = r.freshAddr()
		r.changed[service] = addrs
		all = append(all, change{service, addrs[:1], func(ctx context.Context) error {
			return r.updateSlice(ctx, service, addrs)
		}})
	}
	return all
}

// bursts changes 1 % of the Services at once, several times.
func (r *run) bursts(ctx context.Context) error {
	const bursts = 5
	size, s := max(r.services/100, 1), &r.bursted
	err := r.withRig(ctx, func(rig *rig) error {
		return r.scale.repeat(bursts, 1, func(i int) error {
			return r.subject.measure(s, func() error {
				latency, floor, err := rig.perform(ctx, r.replacements(i*size, size), 0)
				if err != nil {
					return err
				}
				s.latency, s.floor = append(s.latency, slices.Max(latency)), append(s.floor, slices.Max(floor))
				return r.subject.settle()
			})
		})
	})
	if err != nil {
		return err
	}
	r.add("1 % of the Services at once", count("changes", float64(size)),
		seconds("p50", s.latency.Median()), seconds("max", s.latency.Quantile(1)),
		seconds("watch alone p50", s.floor.Median()), seconds("CPU", s.cpu.Mean()), count("n", float64(len(s.latency))))
	title := "1 % of the Services changed at once: until all are committed, p50"
	r.floor(r.line("burst", title, report.Seconds, "", s.latency.Median()), s)
	figures, err := r.subject.memory("after changes")
	if err != nil {
		return err
	}
	r.memory = append(r.memory, figures...)
	title = "Memory after changes (VmRSS), and the most with children"
	r.line("memory", title, report.Bytes, ", process", figures[0].Value)
	r.line("memory", title, report.Bytes, ", with children", figures[2].Value)
	return nil
}

// churn replaces endpoints at a constant rate, at one size.
func (r *run) churn(ctx context.Context) error {
	if r.services != r.scale.churnServices {
		return nil
	}
	var s series
	every := time.Second / time.Duration(r.scale.churnRate)
	changes := r.replacements(0, min(int(r.scale.churnTime/every), r.services))
	var took time.Duration
	err := r.withRig(ctx, func(rig *rig) error {
		return r.subject.measure(&s, func() (err error) {
			began := time.Now()
			s.latency, s.floor, err = rig.perform(ctx, changes, every)
			took = time.Since(began)
			return err
		})
	})
	if err != nil {
		return err
	}
	cpu := s.cpu.Mean()
	r.add("Churn", count("changes/s", float64(r.scale.churnRate)),
		seconds("p50", s.latency.Median()), seconds("p99", s.latency.Quantile(0.99)), seconds("max", s.latency.Quantile(1)),
		seconds("watch alone p50", s.floor.Median()), seconds("watch alone p99", s.floor.Quantile(0.99)),
		seconds("CPU", cpu), report.Value("of one core", report.Percent, 100*cpu/took.Seconds()))
	p := r.Plot(report.Plot{
		Name: "churn", XLabel: "API write to commit", YLabel: "%", X: report.Seconds, Y: report.Percent,
		Title: fmt.Sprintf("%d changes a second, %d Services: part committed within a time", r.scale.churnRate, r.services),
	})
	for percent := range 101 {
		p.Line(r.proxy, s.latency.Quantile(float64(percent)/100), float64(percent))
	}
	figures, err := r.subject.memory("after churn")
	r.memory = append(r.memory, figures...)
	return err
}

// spread returns the numbers below n in an order in which neighbours are far
// apart, each once in n calls unless n is a multiple of the step.
func spread(i, n int) int {
	const step = 7919 // a prime number
	return i * step % n
}
