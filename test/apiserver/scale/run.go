package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/result"
)

// measure runs the whole benchmark.
func (o *options) measure(ctx context.Context) (out *result.Result, err error) {
	out = &result.Result{Command: o.command, Date: time.Now().UTC().Truncate(time.Second)}
	if out.Machine, err = result.ThisMachine(); err != nil {
		return nil, err
	}
	if out.Versions, err = o.programs.Versions(o.proxies()); err != nil {
		return nil, err
	}
	log, err := observe.OpenKernelLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := o.measureSizes(ctx, out); err != nil {
		return nil, err
	}
	out.Stalls, err = log.Stalls()
	return out, err
}

// measureSizes measures all sizes. Those of as many endpoints a Service share an API server, which gets more and more Services.
func (o *options) measureSizes(ctx context.Context, out *result.Result) (err error) {
	var w *world
	defer func() {
		if w != nil {
			err = errors.Join(err, cleanUp(w.close()))
		}
	}()
	for _, size := range o.sizes {
		if w == nil || w.stock.endpoints != size.endpoints || w.stock.services > size.services {
			if w != nil {
				if err := w.close(); err != nil {
					return err
				}
			}
			if w, err = newWorld(ctx, o, size.endpoints); err != nil {
				return err
			}
		}
		if err := w.load(ctx, size.services); err != nil {
			return err
		}
		for _, proxy := range size.proxies {
			run, err := w.measure(ctx, proxy)
			if err != nil {
				return fmt.Errorf("%s, %d Services of %d endpoints: %w", proxy, size.services, size.endpoints, err)
			}
			out.Runs = append(out.Runs, run)
			if err := out.Write(o.resultFile()); err != nil { // what there is, should a later one fail
				return err
			}
		}
	}
	return nil
}

// cleanUp marks an error of cleaning up; nil stays nil.
func cleanUp(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("clean up: %w", err)
}

// measure measures a proxy with the Services that there are.
func (w *world) measure(ctx context.Context, proxy string) (run *result.Run, err error) {
	run = &result.Run{Proxy: proxy, Services: w.stock.services, Endpoints: w.stock.endpoints}
	if run.Load, err = result.LoadAverage(); err != nil {
		return nil, err
	}
	say := func(format string, args ...any) {
		w.options.say("%-10s  %6d x %-2d  %s", proxy, run.Services, run.Endpoints, fmt.Sprintf(format, args...))
	}
	n, err := w.measureColdStarts(ctx, proxy, run)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cleanUp(n.remove())) }()
	say("cold start %s, %.2f s CPU", short(run.ColdStart.Times), run.ColdStart.CPU)
	if run.Restart, err = n.measureRestarts(ctx); err != nil {
		return nil, err
	}
	say("restart %s, %.2f s CPU", short(run.Restart.Times), run.Restart.CPU)
	if err := n.measureRunning(ctx, run, say); err != nil {
		return nil, err
	}
	return run, n.stop()
}

// measureColdStarts starts the proxy in empty namespaces. The last of them is returned with the table that the proxy has made; the
// proxy does not run any more.
func (w *world) measureColdStarts(ctx context.Context, proxy string, run *result.Run) (last *node, err error) {
	var s starts
	var slabs []int64
	err = w.options.repeat(w.options.starts, 1, func(int) error {
		if last != nil {
			if err := last.remove(); err != nil {
				return err
			}
		}
		if last, err = w.newProxyNode(ctx, proxy); err != nil {
			return err
		}
		slab, err := observe.Slab()
		if err != nil {
			return err
		}
		if err := s.measure(ctx, last, expectation{present: w.stock.frontends()}); err != nil {
			return err
		}
		if run.Memory.Start, err = last.process.usage(); err != nil {
			return err
		}
		if err := last.stop(); err != nil {
			return err
		}
		after, err := observe.Slab()
		slabs = append(slabs, after-slab)
		return err
	})
	if err != nil && last != nil {
		err = errors.Join(err, cleanUp(last.remove()))
	}
	run.ColdStart = s.result()
	run.Memory.Slab = slices.Max(append(slabs, 0))
	return last, err
}

// measureRunning measures what a proxy that runs does.
func (n *node) measureRunning(ctx context.Context, run *result.Run, say func(string, ...any)) (err error) {
	if err := n.settle(); err != nil {
		return err
	}
	if run.Idle, err = n.measureIdle(); err != nil {
		return err
	}
	if run.Changes, err = n.measureChanges(ctx); err != nil {
		return err
	}
	for _, kind := range result.Kinds() {
		c := run.Changes[kind]
		say("%-17s %s, watch %s, CPU %.1f ms", kind, short(c.Times), short(c.Floor), c.CPU*1000)
	}
	if run.Burst, err = n.measureBursts(ctx); err != nil {
		return err
	}
	say("burst of %d %s, watch %s, %.2f s CPU", run.Burst.Changes, short(run.Burst.Times), short(run.Burst.Floor), run.Burst.CPU)
	if run.Memory.Changes, err = n.process.usage(); err != nil {
		return err
	}
	n.keepProfile(ctx, "changes-heap", "heap")
	if n.world.options.churnServices != run.Services {
		return nil
	}
	profiled := n.profileCPU(ctx, "churn", n.world.options.churnTime)
	defer profiled()
	if run.Churn, err = n.measureChurn(ctx); err != nil {
		return err
	}
	say("churn of %d %s, watch %s, %.2f s CPU", run.Churn.Changes, short(run.Churn.Times), short(run.Churn.Floor), run.Churn.CPU)
	usage, err := n.process.usage()
	run.Memory.Churn = &usage
	return err
}

// measureIdle returns the CPU time that the proxy uses in a second in which nothing happens.
func (n *node) measureIdle() (float64, error) {
	window := n.world.options.rest
	before, err := n.process.group.CPU()
	if err != nil {
		return 0, err
	}
	if err := n.pause(window); err != nil {
		return 0, err
	}
	after, err := n.process.group.CPU()
	return (after - before).Seconds() / window.Seconds(), err
}

// usage returns the memory of the process now, and the most that it and its children had since the last call.
func (p *process) usage() (result.Usage, error) {
	status, err := observe.StatusOf(p.pid)
	if err != nil {
		return result.Usage{}, err
	}
	return result.Usage{RSS: status.RSS, HighWater: status.HighWater, Tree: max(p.peak.Take(), status.RSS)}, nil
}

// short shows quantiles in a line of the progress.
func short(q result.Quantiles) string {
	return fmt.Sprintf("p50 %s p99 %s (%d)", ms(q.P50), ms(q.P99), q.N)
}

func ms(seconds float64) string { return fmt.Sprintf("%.1f ms", seconds*1000) }
