package healthcheck

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// listeners are the listeners of a ServiceServer. Only Run's goroutine uses
// them.
type listeners struct {
	server   *ServiceServer
	open     map[binding]*listener
	failures map[binding]failure
	requests sync.WaitGroup // of stopped listeners
}

// failure is the last failure to open a binding or to serve it.
type failure struct {
	err     string
	delay   time.Duration
	retryAt time.Time
}

// Run opens and closes listeners until ctx ends. It then closes all ports,
// waits up to 5 s for current requests, and returns nil. If a port cannot be
// opened, Run retries until it succeeds or the port is no longer needed. Run
// must be called only once.
func (s *ServiceServer) Run(ctx context.Context) error {
	l := &listeners{server: s, open: make(map[binding]*listener), failures: make(map[binding]failure)}
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			l.closeOthers(nil)
			l.requests.Wait()
			return nil
		case <-s.wake:
		case <-retry.C:
		}
		retry.Stop()
		if next := l.reconcile(s.desired()); !next.IsZero() {
			retry.Reset(time.Until(next))
		}
	}
}

// reconcile first closes and then opens listeners, because a port can move
// from one binding to another. It returns the time of the next retry, or the
// zero time.
func (l *listeners) reconcile(desired []binding) (next time.Time) {
	closed := l.closeOthers(desired)
	for _, b := range desired {
		if l.open[b] != nil {
			continue
		}
		f, failed := l.failures[b]
		if !failed || closed || !time.Now().Before(f.retryAt) {
			l.tryOpen(b)
		}
		if f, failed := l.failures[b]; failed && (next.IsZero() || f.retryAt.Before(next)) {
			next = f.retryAt
		}
	}
	return next
}

// closeOthers closes the listeners that failed or are not desired. It reports
// whether it closed a port that another binding may need.
func (l *listeners) closeOthers(desired []binding) (closed bool) {
	keep := make(map[binding]bool, len(desired))
	for _, b := range desired {
		keep[b] = true
	}
	maps.DeleteFunc(l.failures, func(b binding, _ failure) bool { return !keep[b] })
	for b, current := range l.open {
		err := current.err.Load()
		if keep[b] && err == nil {
			continue
		}
		current.stop(l.server.drainTimeout, &l.requests)
		delete(l.open, b)
		if keep[b] {
			l.fail(b, *err)
		} else {
			closed = true
			klog.V(2).InfoS("Closing healthcheck",
				"service", b.service, "port", b.at.Port(), "address", b.at.Addr())
		}
	}
	return closed
}

func (l *listeners) tryOpen(b binding) {
	socket, err := l.server.listen(b.listenArgs())
	if err != nil {
		l.fail(b, err)
		return
	}
	delete(l.failures, b)
	l.open[b] = startListener(socket, l.server.handler(b.service), l.server.limit, l.server.signal)
	klog.V(2).InfoS("Opening healthcheck",
		"service", b.service, "port", b.at.Port(), "address", socket.Addr())
}

// fail schedules a retry. It reports an error that differs from the previous
// one.
func (l *listeners) fail(b binding, err error) {
	f, again := l.failures[b]
	known := again && f.err == err.Error()
	f.err = err.Error()
	if now := time.Now(); !now.Before(f.retryAt) { // an earlier attempt does not change the delay
		f.delay = min(max(2*f.delay, l.server.minDelay), l.server.maxDelay)
		f.retryAt = now.Add(f.delay)
	}
	l.failures[b] = f

	if known {
		klog.V(2).InfoS("Failed to start healthcheck again",
			"service", b.service, "port", b.at.Port(), "err", err)
		return
	}
	config := l.server.config
	klog.ErrorS(err, "Failed to start healthcheck",
		"node", config.NodeName, "service", b.service, "port", b.at.Port())
	config.Report(Event{
		Namespace: b.service.Namespace,
		Name:      b.service.Name,
		Reason:    "FailedToStartServiceHealthcheck",
		Message: fmt.Sprintf("node %s failed to start healthcheck %q on port %d: %v",
			config.NodeName, b.service, b.at.Port(), err),
	})
}
