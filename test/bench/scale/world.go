package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// world is a stage with the Services 0 to services-1, and some temporary ones.
type world struct {
	*stage.Stage
	tracing   string // folder where tracefs is mounted
	endpoints int    // of each Service
	services  int

	changed map[int][]netip.Addr // endpoints of changed Services
	fresh   int                  // new addresses of endpoints so far
	extra   int                  // temporary Services so far, numbered from stage.MaxServices
}

func (s *scale) newWorld(ctx context.Context, endpoints int) (w *world, err error) {
	w = &world{endpoints: endpoints, changed: map[int][]netip.Addr{}}
	if w.tracing, err = os.MkdirTemp("", "nftproxy-tracing-"); err != nil {
		return nil, err
	}
	if err := unix.Mount("tracefs", w.tracing, "tracefs", 0, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("mount tracefs: %w", err), os.Remove(w.tracing))
	}
	if w.Stage, err = stage.New(ctx, s.programs); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// close removes the world. It may be nil.
func (w *world) close() (err error) {
	if w == nil {
		return nil
	}
	if w.Stage != nil {
		err = w.Stage.Close()
	}
	return errors.Join(err, unix.Unmount(w.tracing, unix.MNT_DETACH), os.Remove(w.tracing))
}

// load creates Services until there are that many, and lists all objects: the
// first proxy must not meet a colder API server than the next one.
func (w *world) load(ctx context.Context, services int) error {
	if err := w.Load(ctx, w.services, services, w.addrs); err != nil {
		return err
	}
	w.services = services
	cached := metav1.ListOptions{ResourceVersion: "0"}
	_, errServices := w.Services().List(ctx, cached)
	_, errSlices := w.Slices().List(ctx, cached)
	return errors.Join(errServices, errSlices)
}

// addrs returns the endpoints of a Service.
func (w *world) addrs(service int) []netip.Addr {
	if addrs, ok := w.changed[service]; ok {
		return slices.Clone(addrs)
	}
	return stage.Endpoints(service, w.endpoints)
}

// freshAddr returns a new address of an endpoint.
func (w *world) freshAddr() netip.Addr {
	w.fresh++
	return lab.AddrIn(netip.MustParsePrefix("10.192.0.0/16"), w.fresh)
}

// createExtraSlice creates the endpoints of a new temporary Service.
func (w *world) createExtraSlice(ctx context.Context) (service int, err error) {
	service = stage.MaxServices + w.extra
	w.extra++
	addrs := make([]netip.Addr, w.endpoints)
	for i := range addrs {
		addrs[i] = w.freshAddr()
	}
	_, err = w.Slices().Create(ctx, stage.NewSlice(service, addrs), metav1.CreateOptions{})
	return service, err
}

// creation returns a request that creates a Service.
func (w *world) creation(service int) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.Services().Create(ctx, stage.NewService(service), metav1.CreateOptions{})
		return err
	}
}

// deletion returns a request that deletes a Service.
func (w *world) deletion(service int) func(context.Context) error {
	return func(ctx context.Context) error {
		return w.Services().Delete(ctx, stage.ServiceName(service), metav1.DeleteOptions{})
	}
}

// update returns a request that changes the endpoints of a Service, and notes
// them.
func (w *world) update(service int, addrs []netip.Addr) func(context.Context) error {
	w.changed[service] = addrs
	return func(ctx context.Context) error {
		_, err := w.Slices().Update(ctx, stage.NewSlice(service, addrs), metav1.UpdateOptions{})
		return err
	}
}

func (w *world) deleteSlice(ctx context.Context, service int) error {
	return w.Slices().Delete(ctx, stage.ServiceName(service), metav1.DeleteOptions{})
}

// change is a change of one Service or of its endpoints.
type change struct {
	service int
	addrs   []netip.Addr // the proxy writes or deletes something with one of these
	apply   func(context.Context) error
}

// listening calls f while there is a listener and a watcher. There is none
// during starts: it makes large transactions slower.
func (r *run) listening(ctx context.Context, f func() error) (err error) {
	if err := r.subject.settle(); err != nil {
		return err
	}
	if r.watcher, err = r.watchFrom(ctx, r.subject.Pod.Namespace); err != nil {
		return err
	}
	defer r.watcher.close()
	if r.listener, err = listen(r.subject.Pod.Fd()); err != nil {
		return err
	}
	err = f()
	return errors.Join(err, r.listener.close())
}

// measureChanges makes changes at once, and waits until the proxy is idle
// again. The latency is the latency of the last change.
func (r *run) measureChanges(ctx context.Context, to *series, changes []change) error {
	return r.subject.measure(to, func() error {
		latency, floor, err := r.perform(ctx, changes, 0)
		if err != nil {
			return err
		}
		last, event := slices.Max(latency), slices.Max(floor)
		to.latency, to.floor = append(to.latency, last), append(to.floor, event)
		to.above = append(to.above, last-event)
		return r.subject.settle()
	})
}

// perform makes changes, all at once (64 at a time) or one after the other in
// intervals, and waits until all are committed. It returns the times of each
// until the commit and until the event.
func (r *run) perform(
	ctx context.Context, changes []change, every time.Duration,
) (latency, floor report.Sample, err error) {
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
			lab.Sleep(writing, time.Until(first.Add(time.Duration(i)*every))) // the requests fail if writing ended
			began[i] = time.Now()
		}
		if err := context.Cause(running); err != nil {
			return nil, nil, err
		}
		group.Go(func() error { return c.apply(writing) })
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	timeout := time.After(5 * time.Minute)
	await := func(what string, at <-chan time.Time, i int, to *report.Sample) error {
		select {
		case at := <-at:
			to.Add(at.Sub(began[i]))
			return nil
		case <-running.Done():
			return context.Cause(running)
		case <-timeout:
			name := stage.ServiceName(changes[i].service)
			return fmt.Errorf("%s: no %s of a change of %s", r.proxy, what, name)
		}
	}
	for i := range changes {
		err := errors.Join(await("commit", commits[i], i, &latency), await("event", events[i], i, &floor))
		if err != nil {
			return nil, nil, err
		}
	}
	return latency, floor, nil
}

// oneOfEach returns a change of every kind. Afterwards there are as many
// Services and endpoints as before.
func (r *run) oneOfEach(i, extra int) []change {
	service := spread(i, r.services)
	fresh, other := r.freshAddr(), r.freshAddr()
	more := append(r.addrs(service), fresh)
	less := more[1:]
	vip := []netip.Addr{stage.Frontend(extra).Addr()}
	return []change{
		{service, []netip.Addr{fresh}, r.update(service, more)},
		// Some proxies delete the row of that endpoint, others rewrite the
		// remaining ones.
		{service, more, r.update(service, less)},
		{service, []netip.Addr{other}, r.update(service, append([]netip.Addr{other}, less[1:]...))},
		{extra, vip, r.creation(extra)},
		{extra, vip, r.deletion(extra)},
	}
}

// replacements returns changes that replace the first endpoint of some
// Services.
func (r *run) replacements(first, n int) (all []change) {
	for i := range n {
		service := spread(first+i, r.services)
		addrs := r.addrs(service)
		addrs[0] = r.freshAddr()
		all = append(all, change{service, addrs[:1], r.update(service, addrs)})
	}
	return all
}

// spread returns the numbers below n in an order in which neighbours are far
// apart, each once in n calls unless n is a multiple of the step.
func spread(i, n int) int {
	const step = 7919 // a prime number
	return i * step % n
}
