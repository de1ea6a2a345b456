package healthcheck

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/klog/v2"
)

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
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			s.closeOthers(nil)
			s.requests.Wait()
			return nil
		case <-s.wake:
		case <-retry.C:
		}
		retry.Stop()
		if next := s.reconcile(s.desired()); !next.IsZero() {
			retry.Reset(time.Until(next))
		}
	}
}

// reconcile first closes and then opens listeners, because a port can move
// from one binding to another. It returns the time of the next retry, or the
// zero time.
func (s *ServiceServer) reconcile(desired []binding) (next time.Time) {
	closed := s.closeOthers(desired)
	for _, b := range desired {
		if s.open[b] != nil {
			continue
		}
		f, failed := s.failures[b]
		if !failed || closed || !time.Now().Before(f.retryAt) {
			s.tryOpen(b)
		}
		if f, failed := s.failures[b]; failed && (next.IsZero() || f.retryAt.Before(next)) {
			next = f.retryAt
		}
	}
	return next
}

// closeOthers closes the listeners that failed or are not desired. It reports
// whether it closed a port that another binding may need.
func (s *ServiceServer) closeOthers(desired []binding) (closed bool) {
	keep := make(map[binding]bool, len(desired))
	for _, b := range desired {
		keep[b] = true
	}
	maps.DeleteFunc(s.failures, func(b binding, _ failure) bool { return !keep[b] })
	for b, current := range s.open {
		err := current.err.Load()
		if keep[b] && err == nil {
			continue
		}
		current.stop(s.drainTimeout, &s.requests)
		delete(s.open, b)
		if keep[b] {
			s.fail(b, *err)
		} else {
			closed = true
			klog.V(2).InfoS("Closing healthcheck",
				"service", b.service, "port", b.at.Port(), "address", b.at.Addr())
		}
	}
	return closed
}

func (s *ServiceServer) tryOpen(b binding) {
	socket, err := s.listen(b.listenArgs())
	if err != nil {
		s.fail(b, err)
		return
	}
	delete(s.failures, b)
	s.open[b] = startListener(socket, s.handler(b.service), s.limit, s.signal)
	klog.V(2).InfoS("Opening healthcheck",
		"service", b.service, "port", b.at.Port(), "address", socket.Addr())
}

// fail schedules a retry. It reports an error that differs from the previous
// one.
func (s *ServiceServer) fail(b binding, err error) {
	f, again := s.failures[b]
	known := again && f.err == err.Error()
	f.err = err.Error()
	if now := time.Now(); !now.Before(f.retryAt) { // an earlier attempt does not change the delay
		f.delay = min(max(2*f.delay, s.minDelay), s.maxDelay)
		f.retryAt = now.Add(f.delay)
	}
	s.failures[b] = f

	if known {
		klog.V(2).InfoS("Failed to start healthcheck again",
			"service", b.service, "port", b.at.Port(), "err", err)
		return
	}
	node := s.config.NodeName
	klog.ErrorS(err, "Failed to start healthcheck",
		"node", node, "service", b.service, "port", b.at.Port())
	s.config.Report(Event{
		Namespace: b.service.Namespace,
		Name:      b.service.Name,
		Reason:    "FailedToStartServiceHealthcheck",
		Message: fmt.Sprintf("node %s failed to start healthcheck %q on port %d: %v",
			node, b.service, b.at.Port(), err),
	})
}
