package manifest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Config is the configuration of a Source. All fields are required.
type Config struct {
	Dir     string // the directory with the manifests
	Handler Handler
}

// Source delivers the objects of a directory of manifests.
type Source struct {
	config Config
	logger klog.Logger
	watch  *watch
	reload chan struct{} // has a buffer of one request
	state  *state
	now    func() time.Time
	last   listing   // of the last read that succeeded
	err    error     // of the last read
	failed time.Time // the first of the reads that failed since then
	status atomic.Pointer[Status]
}

// New returns a Source. Run starts it.
func New(config Config) (*Source, error) {
	if config.Dir == "" || config.Handler == nil {
		return nil, errors.New("manifest: Dir and Handler are required")
	}
	s := &Source{
		config: config, watch: newWatch(config.Dir), reload: make(chan struct{}, 1), state: newState(), now: time.Now,
	}
	s.status.Store(&Status{Dir: config.Dir})
	return s, nil
}

// Run delivers the objects of the directory, and then every change, until ctx
// is done. It returns an error if it cannot read the directory at the start.
// Later errors are logged, and the delivered objects stay. Run uses the
// logger of ctx, or klog's. It must be called once.
func (s *Source) Run(ctx context.Context) error {
	s.logger = klog.LoggerWithName(klog.FromContext(ctx), "manifest")
	defer s.watch.close()
	if err := s.start(); err != nil {
		return err
	}
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.reload:
			s.readAgain()
			continue
		case <-s.watch.changed:
		case <-poll.C:
			if s.unchanged() {
				continue
			}
		}
		settle(ctx, s.watch.changed)
		s.refresh()
	}
}

// start reads the directory for the first time and delivers all objects.
func (s *Source) start() error {
	// Watching starts first, so that changes during the read are not lost.
	s.watch.follow(s.logger)
	if err := s.read(); err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	s.publish()
	s.state.deliver(s.config.Handler)
	s.config.Handler.OnNodeSynced()
	s.config.Handler.OnServiceSynced()
	s.config.Handler.OnEndpointSlicesSynced()
	s.config.Handler.Sync()
	return nil
}

// unchanged reports whether the directory is as it was at the last read.
func (s *Source) unchanged() bool {
	s.watch.follow(s.logger)
	now, err := list(s.config.Dir)
	if err != nil {
		return s.err != nil
	}
	return s.err == nil && now.same(s.last)
}

// refresh reads the directory again and delivers the changes.
func (s *Source) refresh() {
	s.watch.follow(s.logger)
	err := s.read()
	switch {
	case err != nil && s.err == nil:
		s.failed = s.now()
		s.logger.Error(err, "Failed to read manifest directory, keeping its last objects", "dir", s.config.Dir)
	case err == nil && s.err != nil:
		s.logger.Info("Manifest directory is readable again", "dir", s.config.Dir)
	}
	s.err = err
	s.publish()
	if err == nil && s.state.deliver(s.config.Handler) {
		s.config.Handler.Sync()
	}
}

// read updates the state from the directory and logs the differences.
func (s *Source) read() error {
	snap, err := takeSnapshot(s.config.Dir)
	if err != nil {
		return err
	}
	logIgnored(s.logger, snap.ignored, s.last.ignored)
	s.last = snap.listing
	s.state.read(snap, s.now(), s.logger)
	return nil
}
