package main

import (
	"context"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/result"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// bursts is how many there are at most.
const bursts = 5

// measureBursts replaces an endpoint of 1 % of the Services at once, several times.
func (n *node) measureBursts(ctx context.Context) (result.Burst, error) {
	size := max(n.world.stock.services/100, 1)
	var times, floor []time.Duration
	var cpu time.Duration
	var traffic []observe.Traffic
	err := n.withRig(ctx, func(r *rig) error {
		return n.world.options.repeat(bursts, 1, func(i int) error {
			n.process.trace.Take()
			before, err := n.process.group.CPU()
			if err != nil {
				return err
			}
			last, err := r.burst(ctx, i, size)
			if err != nil {
				return err
			}
			if err := n.settle(); err != nil {
				return err
			}
			after, err := n.process.group.CPU()
			times, floor = append(times, last.latency), append(floor, last.floor)
			cpu += after - before
			traffic = append(traffic, n.process.trace.Take())
			return err
		})
	})
	return result.Burst{
		Changes: size, Times: result.QuantilesOf(times), Floor: result.QuantilesOf(floor),
		CPU: mean(cpu, len(times)), Traffic: meanTraffic(traffic, len(traffic)),
	}, err
}

// burst is the i-th one, of that size. It returns the times from before the first change until the last of them was committed and told.
func (r *rig) burst(ctx context.Context, i, size int) (sample, error) {
	s := r.world.stock
	all := make([]*pending, size)
	for k := range all {
		all[k] = r.replaceFirst(spread(i*size+k, s.services))
	}
	began := time.Now()
	for _, p := range all {
		p.began = began
	}
	if err := stage.InParallel(ctx, 0, size, func(ctx context.Context, k int) error {
		return r.world.updateSlice(ctx, all[k].service, s.addrs(all[k].service))
	}); err != nil {
		return sample{}, err
	}
	var last sample
	for _, p := range all {
		one, err := r.await(p)
		if err != nil {
			return sample{}, err
		}
		last.latency, last.floor = max(last.latency, one.latency), max(last.floor, one.floor)
	}
	return last, nil
}

// replaceFirst makes a fresh address the first endpoint of a Service in the stock, and prepares for the proxy to follow.
func (r *rig) replaceFirst(service int) *pending {
	s := r.world.stock
	addrs := s.addrs(service)
	addrs[0] = s.freshAddr()
	s.changed[service] = addrs
	return r.expect(service, addrs[0])
}
