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

// witnesses is how many Services come and go while a proxy is down, by which it shows that it has written its table anew.
const witnesses = 8

// expectation is the table that a proxy that starts is to come to.
type expectation struct{ present, absent []netip.AddrPort }

// starts collects what several starts took.
type starts struct {
	times   []time.Duration
	cpu     time.Duration
	traffic []observe.Traffic
	// disturbed is how many of them began although the machine had other work.
	disturbed int
}

func (s *starts) result() result.Start {
	return result.Start{
		Times: result.QuantilesOf(s.times), CPU: mean(s.cpu, len(s.times)), Traffic: meanTraffic(s.traffic, len(s.traffic)),
		Disturbed: s.disturbed,
	}
}

// measure starts the proxy and waits until its table is as expected.
func (s *starts) measure(ctx context.Context, n *node, want expectation) error {
	calm, err := observe.AwaitCalm(ctx, n.world.options.calm)
	if err != nil {
		return err
	}
	if !calm {
		s.disturbed++
		n.world.options.say("%s starts although the machine has other work", n.proxy)
	}
	if err := n.start(ctx); err != nil {
		return err
	}
	const perSecond = 5000 // Services, of which a proxy that is worth a profile takes up more
	profiled := n.profileCPU(ctx, fmt.Sprintf("start%d", n.starts), n.world.options.rest+time.Duration(n.world.stock.services/perSecond)*time.Second)
	defer profiled()
	programmed, err := n.stage.AwaitProgrammed(n.process.Process, stage.Expectation{Present: want.present, Absent: want.absent})
	if err != nil {
		return err
	}
	if err := n.pause(n.world.options.rest); err != nil {
		return err
	}
	cpu, err := n.process.group.CPU()
	s.times = append(s.times, programmed.Sub(n.process.Began))
	s.cpu += cpu
	s.traffic = append(s.traffic, n.process.trace.Take())
	return err
}

// pause waits for a time, unless the process ends.
func (n *node) pause(d time.Duration) error { return n.process.Pause(d) }

// measureRestarts stops the proxy, which has a table, and starts it again, several times. It runs afterwards.
func (n *node) measureRestarts(ctx context.Context) (result.Start, error) {
	var s starts
	var old []netip.AddrPort
	o := n.world.options
	err := o.repeat(o.starts, 1, func(int) error {
		if err := n.stop(); err != nil {
			return err
		}
		fresh, err := n.world.replaceWitnesses(ctx)
		if err != nil {
			return err
		}
		err = s.measure(ctx, n, expectation{present: append(n.world.stock.frontends(), fresh...), absent: old})
		old = fresh
		return err
	})
	return s.result(), err
}

// replaceWitnesses deletes the witnesses that there are and makes others, whose frontends it returns.
func (w *world) replaceWitnesses(ctx context.Context) ([]netip.AddrPort, error) {
	for _, service := range w.stock.witnesses {
		if err := w.deleteService(ctx, service); err != nil {
			return nil, err
		}
		if err := w.deleteSlice(ctx, service); err != nil {
			return nil, err
		}
	}
	w.stock.witnesses = nil
	var fresh []netip.AddrPort
	for range witnesses {
		service := w.stock.extraService()
		if err := w.create(ctx, service, w.stock.freshAddrs()); err != nil {
			return nil, err
		}
		w.stock.witnesses = append(w.stock.witnesses, service)
		fresh = append(fresh, stage.Frontend(service))
	}
	return fresh, nil
}
