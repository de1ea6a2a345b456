package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/result"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// series collects what changes of one kind took.
type series struct {
	samples []sample
	cpu     time.Duration
	traffic []observe.Traffic
}

func (s *series) result() *result.Change {
	var times, floor, above []time.Duration
	for _, one := range s.samples {
		times, floor, above = append(times, one.latency), append(floor, one.floor), append(above, one.latency-one.floor)
	}
	return &result.Change{
		Times: result.QuantilesOf(times), Floor: result.QuantilesOf(floor), AboveFloor: result.QuantilesOf(above),
		CPU: mean(s.cpu, len(s.samples)), Traffic: meanTraffic(s.traffic, len(s.samples)),
	}
}

// minChanges is how many changes of a kind there are however long they take, unless fewer are asked for.
const minChanges = 10

// measureChanges makes changes of every kind, one at a time, with time between them for the proxy to come to rest.
func (n *node) measureChanges(ctx context.Context) (map[result.Kind]*result.Change, error) {
	collected := map[result.Kind]*series{}
	for _, kind := range result.Kinds() {
		collected[kind] = new(series)
	}
	extra, err := n.world.prepareExtra(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.settle(); err != nil {
		return nil, err
	}
	err = n.withRig(ctx, func(r *rig) error {
		return n.world.options.repeat(len(extra), minChanges, func(i int) error { return r.changeAll(ctx, collected, i, extra[i]) })
	})
	if err != nil {
		return nil, err
	}
	out := map[result.Kind]*result.Change{}
	for kind, s := range collected {
		out[kind] = s.result()
	}
	for _, service := range extra {
		if err := n.world.deleteSlice(ctx, service); err != nil {
			return nil, err
		}
	}
	return out, n.settle()
}

// prepareExtra makes the endpoints of Services that come for a while. Endpoints without a Service are nothing to a proxy.
func (w *world) prepareExtra(ctx context.Context) (services []int, err error) {
	for range w.options.changes {
		service := w.stock.extraService()
		if err := w.createSlice(ctx, service, w.stock.freshAddrs()); err != nil {
			return nil, err
		}
		services = append(services, service)
	}
	return services, nil
}

// changeAll makes one change of every kind. In the end there are as many Services and endpoints as before.
func (r *rig) changeAll(ctx context.Context, to map[result.Kind]*series, i, extra int) error {
	w, s := r.world, r.world.stock
	service := spread(i, s.services)
	addrs := s.addrs(service)
	fresh, other := s.freshAddr(), s.freshAddr()
	more := append(addrs, fresh)
	less := more[1:]
	vip := stage.Frontend(extra).Addr()
	replaced := append([]netip.Addr{other}, less[1:]...)
	steps := []struct {
		kind    result.Kind
		service int
		addrs   []netip.Addr
		apply   func(context.Context) error
	}{
		{result.EndpointAdded, service, []netip.Addr{fresh}, func(ctx context.Context) error { return w.updateSlice(ctx, service, more) }},
		// Some delete the row of that endpoint, others write the remaining ones anew.
		{result.EndpointRemoved, service, more, func(ctx context.Context) error { return w.updateSlice(ctx, service, less) }},
		{result.EndpointReplaced, service, []netip.Addr{other}, func(ctx context.Context) error { return w.updateSlice(ctx, service, replaced) }},
		{result.ServiceAdded, extra, []netip.Addr{vip}, func(ctx context.Context) error { return w.createService(ctx, extra) }},
		{result.ServiceDeleted, extra, []netip.Addr{vip}, func(ctx context.Context) error { return w.deleteService(ctx, extra) }},
	}
	for _, step := range steps {
		p := r.expect(step.service, step.addrs...)
		if err := to[step.kind].measure(ctx, r, p, step.apply); err != nil {
			return fmt.Errorf("%s: %w", step.kind, err)
		}
	}
	s.changed[service] = replaced
	return nil
}

// measure makes a change and waits until the proxy has come to rest.
func (s *series) measure(ctx context.Context, r *rig, p *pending, apply func(context.Context) error) error {
	r.process.trace.Take()
	before, err := r.process.group.CPU()
	if err != nil {
		return err
	}
	p.began = time.Now()
	if err := apply(ctx); err != nil {
		return err
	}
	one, err := r.await(p)
	if err != nil {
		return err
	}
	if err := r.settle(); err != nil {
		return err
	}
	after, err := r.process.group.CPU()
	s.samples = append(s.samples, one)
	s.cpu += after - before
	s.traffic = append(s.traffic, r.process.trace.Take())
	return err
}

// spread returns the numbers below n in an order in which neighbours are far apart; each once in n calls if n is no multiple of the step.
func spread(i, n int) int {
	const step = 7919 // a prime number
	return i * step % n
}
