package healthcheck

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// listeners is what Run has made of what is wanted. Only Run's goroutine uses it.
type listeners struct {
	server   *ServiceServer
	open     map[binding]*listener
	failures map[binding]failure
	draining []<-chan struct{}
}

// failure is a binding that cannot be listened on.
type failure struct {
	err   string
	delay time.Duration
	next  time.Time // when it is tried again
}

// Run listens, until ctx ends; then it closes all ports, answers the requests under way, and returns nil. Call it once.
func (s *ServiceServer) Run(ctx context.Context) error {
	l := &listeners{server: s, open: make(map[binding]*listener), failures: make(map[binding]failure)}
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			l.closeAll()
			return nil
		case <-s.wake:
		case <-retry.C:
		}
		retry.Stop()
		if next := l.reconcile(s.wanted()); !next.IsZero() {
			retry.Reset(time.Until(next))
		}
	}
}

// reconcile closes what is not wanted and opens what is, in this order, for a port may pass from one to the other. It
// says when to try again what failed, if anything did.
func (l *listeners) reconcile(wanted []binding) (next time.Time) {
	l.forgetDrained()
	freed := l.closeUnwanted(wanted)
	for _, b := range wanted {
		if l.open[b] != nil {
			continue
		}
		f, failed := l.failures[b]
		if !failed || freed || !time.Now().Before(f.next) {
			l.tryOpen(b)
		}
		if f, failed := l.failures[b]; failed && (next.IsZero() || f.next.Before(next)) {
			next = f.next
		}
	}
	return next
}

// closeUnwanted reports whether it freed a port, which may be the one that another binding waits for.
func (l *listeners) closeUnwanted(wanted []binding) (freed bool) {
	keep := make(map[binding]struct{}, len(wanted))
	for _, b := range wanted {
		keep[b] = struct{}{}
	}
	for b := range l.failures {
		if _, ok := keep[b]; !ok {
			delete(l.failures, b)
		}
	}
	for b, open := range l.open {
		err := open.failed.Load()
		_, ok := keep[b]
		if ok && err == nil {
			continue
		}
		l.draining = append(l.draining, open.stop(l.server.drainTimeout))
		delete(l.open, b)
		if ok {
			l.fail(b, *err)
		} else {
			freed = true
			klog.V(2).InfoS("Closing healthcheck", "service", klog.KRef(b.service.namespace, b.service.name),
				"port", b.at.Port(), "address", b.at.Addr())
		}
	}
	return freed
}

func (l *listeners) tryOpen(b binding) {
	socket, err := l.server.listen(b.network())
	if err != nil {
		l.fail(b, err)
		return
	}
	delete(l.failures, b)
	l.open[b] = serve(socket, newCheckServer(l.server.handler(b.service)), l.server.changed)
	klog.V(2).InfoS("Opening healthcheck", "service", klog.KRef(b.service.namespace, b.service.name),
		"port", b.at.Port(), "address", socket.Addr())
}

// fail notes that a binding is to be tried again, and tells it if it is news.
func (l *listeners) fail(b binding, err error) {
	f, again := l.failures[b]
	known := again && f.err == err.Error()
	f.err = err.Error()
	if now := time.Now(); !now.Before(f.next) { // else it was tried early, which says nothing about the delay
		f.delay = min(max(2*f.delay, l.server.minDelay), l.server.maxDelay)
		f.next = now.Add(f.delay)
	}
	l.failures[b] = f

	service := klog.KRef(b.service.namespace, b.service.name)
	if known {
		klog.V(2).InfoS("Failed to start healthcheck again", "service", service, "port", b.at.Port(), "err", err)
		return
	}
	config := l.server.config
	klog.ErrorS(err, "Failed to start healthcheck", "node", config.NodeName, "service", service, "port", b.at.Port())
	config.Report(Event{
		Namespace: b.service.namespace,
		Name:      b.service.name,
		Reason:    ReasonFailedToStart,
		Action:    ActionListen,
		Message: fmt.Sprintf("node %s failed to start healthcheck %q on port %d: %v",
			config.NodeName, b.service, b.at.Port(), err),
	})
}

func (l *listeners) closeAll() {
	l.closeUnwanted(nil)
	for _, drained := range l.draining {
		<-drained
	}
}

// forgetDrained lets go of listeners whose last request is answered.
func (l *listeners) forgetDrained() {
	left := l.draining[:0]
	for _, drained := range l.draining {
		select {
		case <-drained:
		default:
			left = append(left, drained)
		}
	}
	clear(l.draining[len(left):])
	l.draining = left
}
