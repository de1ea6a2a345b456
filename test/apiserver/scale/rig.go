package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// rig measures how long a proxy that runs takes for changes.
type rig struct {
	*node
	watcher  *watcher
	listener *observe.Listener
}

// pending is a change that was or is about to be made.
type pending struct {
	service int
	began   time.Time
	commit  *observe.Commit
	event   <-chan time.Time
}

// sample is what one change took.
type sample struct{ latency, floor time.Duration }

// withRig listens and watches while f runs. Nothing is listened to at other times: it makes large transactions slower.
func (n *node) withRig(ctx context.Context, f func(*rig) error) (err error) {
	r := &rig{node: n}
	if r.watcher, err = n.world.watchFrom(ctx, n.pod.Namespace); err != nil {
		return err
	}
	defer r.watcher.close()
	if r.listener, err = observe.Listen(n.pod.Fd()); err != nil {
		return err
	}
	err = f(r)
	return errors.Join(err, r.listener.Close())
}

// expect prepares for a change of a Service that makes a proxy write or delete something with one of the addresses.
func (r *rig) expect(service int, addrs ...netip.Addr) *pending {
	return &pending{service: service, commit: r.listener.Expect(addrs...), event: r.watcher.expect(stage.ServiceName(service))}
}

// await waits until the change is committed and its event has come.
func (r *rig) await(p *pending) (sample, error) {
	const limit = 5 * time.Minute
	var s sample
	timeout := time.After(limit)
	for s.latency == 0 || s.floor == 0 {
		select {
		case at := <-p.commit.At:
			s.latency = at.Sub(p.began)
		case at := <-p.event:
			s.floor = at.Sub(p.began)
		case <-r.process.running.Done():
			return s, context.Cause(r.process.running)
		case <-timeout:
			return s, fmt.Errorf("%s: a change of %s is not committed (%t) or not told (%t) after %s", r.proxy, stage.ServiceName(p.service),
				s.latency == 0, s.floor == 0, limit)
		}
	}
	return s, nil
}

// settle waits until the proxy has had nothing to do for so long that it would carry out a change at once.
func (n *node) settle() error {
	const (
		look   = 50 * time.Millisecond
		little = 5 * time.Millisecond // of CPU time, in a look: no sync is so short, looking after a timer is
		limit  = time.Minute
	)
	var before time.Duration
	began, busy := time.Now(), time.Now()
	for time.Since(busy) < minSyncPeriod(n.proxy) && time.Since(began) < limit {
		now, err := n.process.group.CPU()
		if err != nil {
			return err
		}
		if now-before > little {
			busy = time.Now()
		}
		before = now
		if err := n.pause(look); err != nil {
			return err
		}
	}
	return nil
}

// minSyncPeriod is, with some reserve, the time that a proxy by default lets pass from the end of a sync to the next.
func minSyncPeriod(proxy string) time.Duration {
	if proxy == benchmark.Upstream {
		return 1200 * time.Millisecond
	}
	return 200 * time.Millisecond
}
