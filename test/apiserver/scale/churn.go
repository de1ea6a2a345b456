package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/result"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// measureChurn replaces an endpoint of one Service after the other at a constant rate.
func (n *node) measureChurn(ctx context.Context) (*result.Churn, error) {
	o := n.world.options
	n.process.trace.Take()
	before, err := n.process.group.CPU()
	if err != nil {
		return nil, err
	}
	out := &result.Churn{Rate: o.churnRate}
	var times, floor []time.Duration
	err = n.withRig(ctx, func(r *rig) error {
		began := time.Now()
		all, err := r.churn(ctx)
		if err != nil {
			return err
		}
		for _, p := range all {
			one, err := r.await(p)
			if err != nil {
				return err
			}
			times, floor = append(times, one.latency), append(floor, one.floor)
		}
		out.Seconds = time.Since(began).Seconds()
		return nil
	})
	if err != nil {
		return nil, err
	}
	after, err := n.process.group.CPU()
	out.Changes, out.CPU = len(times), (after - before).Seconds()
	out.Times, out.Floor, out.Percentiles = result.QuantilesOf(times), result.QuantilesOf(floor), result.Percentiles(times)
	out.Traffic = meanTraffic([]observe.Traffic{n.process.trace.Take()}, 1)
	return out, err
}

// churn makes the changes, each at its time, whether or not those before it are done. It returns when all were written.
func (r *rig) churn(ctx context.Context) ([]*pending, error) {
	o, s := r.world.options, r.world.stock
	changes := int(o.churnTime.Seconds() * float64(o.churnRate))
	if changes > s.services {
		return nil, fmt.Errorf("churn: %d changes of as many Services, but there are %d", changes, s.services)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tick := time.NewTicker(time.Second / time.Duration(o.churnRate))
	defer tick.Stop()
	var all []*pending
	var writing sync.WaitGroup
	for i := range changes {
		select {
		case <-r.process.running.Done():
			return nil, context.Cause(r.process.running)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
		p := r.replaceFirst(spread(i, s.services))
		addrs := s.addrs(p.service)
		p.began = time.Now()
		all = append(all, p)
		writing.Go(func() {
			if err := r.world.updateSlice(ctx, p.service, addrs); err != nil {
				cancel(fmt.Errorf("churn: %s: %w", stage.ServiceName(p.service), err))
			}
		})
	}
	writing.Wait()
	return all, context.Cause(ctx)
}
