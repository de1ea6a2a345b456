package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// usage is what the API server used.
type usage struct {
	took           time.Duration
	cpu            float64 // seconds
	sent           int64   // bytes that members received, with TLS
	peak           uint64  // bytes of resident memory
	refused, ended int64   // requests, watches
}

// observe returns what the API server uses while do runs.
func (f *fleet) observe(do func() error) (u usage, err error) {
	cpu, _, err := f.server()
	if err != nil {
		return u, err
	}
	const resetPeak = "5"
	file := fmt.Sprintf("/proc/%d/clear_refs", f.Cluster.APIServer.PID())
	if err := os.WriteFile(file, []byte(resetPeak), 0); err != nil {
		return u, err
	}
	f.received.Store(0)
	f.refused.Store(0)
	f.ended.Store(0)
	began := time.Now()
	if err := do(); err != nil {
		return u, err
	}
	u = usage{took: time.Since(began), sent: f.received.Load(), refused: f.refused.Load(), ended: f.ended.Load()}
	u.cpu, u.peak, err = f.server()
	u.cpu -= cpu
	return u, err
}

// server returns the CPU time and the peak memory of the API server.
func (f *fleet) server() (cpu float64, peak uint64, err error) {
	process, err := procfs.NewProc(f.Cluster.APIServer.PID())
	if err != nil {
		return 0, 0, err
	}
	stat, errStat := process.Stat()
	status, errStatus := process.NewStatus()
	return stat.CPUTime(), status.VmHWM, errors.Join(errStat, errStatus)
}

// fresh restarts the API server and lets it fill its caches. It returns the
// version of the objects.
func (f *fleet) fresh(ctx context.Context) (version string, err error) {
	if err := f.RestartAPIServer(ctx); err != nil {
		return "", err
	}
	one := metav1.ListOptions{Limit: 1}
	_, errSlices := f.Slices().List(ctx, one)
	list, errServices := f.Services().List(ctx, one)
	if err := errors.Join(errSlices, errServices); err != nil {
		return "", err
	}
	_, err = stage.AwaitCalm(ctx, f.calm)
	return list.ResourceVersion, err
}

// measure measures members: a start of all, a rolling restart, and a steady
// state.
func (f *fleet) measure(ctx context.Context, m members) (err error) {
	n := m.n
	version, err := f.fresh(ctx)
	if err != nil {
		return err
	}
	run := replay{requests: f.requests[m.proxy], version: version, counts: &f.counters}.run
	if m.clients == real {
		run = informersOf[m.proxy]
	}
	var all []*member
	defer func() { err = errors.Join(err, endAll(all)) }()
	u, err := f.observe(func() error {
		for i := range n {
			all = append(all, f.start(ctx, memberName(i), run))
		}
		return await(ctx, all)
	})
	if err != nil {
		return err
	}
	f.addRow(starts, m, "at once", u, n)
	wave, restarted := max(1, n/10), 0
	u, err = f.observe(func() error {
		for range f.waves {
			some := all[restarted:min(restarted+wave, n)]
			if err := endAll(some); err != nil {
				return err
			}
			for i := range some {
				some[i] = f.start(ctx, memberName(restarted+i), run)
			}
			restarted += len(some)
			if err := await(ctx, some); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.addRow(starts, m, fmt.Sprintf("%d at a time, %d in all", wave, restarted), u, restarted)
	return f.measureChanges(ctx, m)
}

// measureChanges measures a steady state.
func (f *fleet) measureChanges(ctx context.Context, m members) error {
	var changes int
	u, err := f.observe(func() (err error) {
		if changes, err = f.change(ctx); err != nil {
			return err
		}
		return f.awaitQuiet(ctx)
	})
	if err != nil {
		return err
	}
	per := float64(changes)
	figures := []report.Figure{
		report.Number("changes", per),
		report.Value("CPU per change", report.Seconds, u.cpu/per),
	}
	if m.n > 0 {
		figures = append(figures, report.Value("and node", report.Seconds, (u.cpu/per-f.alone)/float64(m.n)),
			report.Value("sent per change and node", report.Bytes, float64(u.sent)/per/float64(m.n)))
	} else {
		f.alone = u.cpu / per
	}
	f.addRow(steady, m, fmt.Sprintf("%d changes a second", f.rate), u, 0, figures...)
	return nil
}

// change replaces an endpoint of one Service after the other.
func (f *fleet) change(ctx context.Context) (changes int, err error) {
	fresh := netip.MustParsePrefix("10.192.0.0/16")
	group, writing := errgroup.WithContext(ctx)
	group.SetLimit(64)
	timed, cancel := context.WithTimeout(writing, f.steady)
	defer cancel()
	for pace := rate.NewLimiter(rate.Limit(f.rate), 1); pace.Wait(timed) == nil; changes++ {
		f.changed++
		service := f.changed % f.services
		addrs := stage.Endpoints(service, f.endpoints)
		addrs[0] = lab.AddrIn(fresh, 1+f.changed%60_000)
		group.Go(func() error {
			_, err := f.Slices().Update(writing, stage.NewSlice(service, addrs), metav1.UpdateOptions{})
			return err
		})
	}
	return changes, group.Wait()
}

// awaitQuiet waits until no bytes arrive for half a second.
func (f *fleet) awaitQuiet(ctx context.Context) error {
	const period = 500 * time.Millisecond
	for before := int64(-1); f.received.Load() != before; {
		before = f.received.Load()
		if !lab.Sleep(ctx, period) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// counters are of the members that run.
type counters struct {
	received atomic.Int64 // bytes
	refused  atomic.Int64 // answers that ask for another attempt, and lists that break off
	ended    atomic.Int64 // watches that the API server ended
}
