package manifest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// Config is the configuration of a Source. All fields are required.
type Config struct {
	Dir     string // the directory with the manifests
	Handler Handler
}

// Source delivers the objects of a directory of manifests.
type Source struct{ config Config }

// New returns a Source. Run starts it.
func New(config Config) (*Source, error) {
	if config.Dir == "" || config.Handler == nil {
		return nil, errors.New("manifest: Dir and Handler are required")
	}
	return &Source{config}, nil
}

// Run delivers the objects of the directory, and then every change, until ctx
// is done. It returns an error if it cannot read the directory at the start.
// Later errors are logged, and the delivered objects stay. Run uses the
// logger of ctx, or klog's.
func (s *Source) Run(ctx context.Context) error {
	r := &run{
		Source: s,
		logger: klog.LoggerWithName(klog.FromContext(ctx), "manifest"),
		watch:  newWatch(s.config.Dir),
		state:  newState(),
	}
	defer r.watch.close()
	if err := r.start(); err != nil {
		return err
	}
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.watch.changed:
		case <-poll.C:
			if r.unchanged() {
				continue
			}
		}
		settle(ctx, r.watch.changed)
		r.refresh()
	}
}

// run is the state of a call of Run.
type run struct {
	*Source
	logger klog.Logger
	watch  *watch
	state  *state
	last   listing // of the last read
	err    error   // of the last read
}

// start reads the directory for the first time and delivers all objects.
func (r *run) start() error {
	// Watching starts first, so that changes during the read are not lost.
	r.watch.follow(r.logger)
	if err := r.read(); err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	r.deliver()
	r.config.Handler.OnNodeSynced()
	r.config.Handler.OnServiceSynced()
	r.config.Handler.OnEndpointSlicesSynced()
	r.config.Handler.Sync()
	return nil
}

// unchanged reports whether the directory is as it was at the last read.
func (r *run) unchanged() bool {
	r.watch.follow(r.logger)
	now, err := list(r.config.Dir)
	if err != nil {
		return r.err != nil
	}
	return r.err == nil && now.same(r.last)
}

// refresh reads the directory again and delivers the changes.
func (r *run) refresh() {
	r.watch.follow(r.logger)
	err := r.read()
	switch {
	case err != nil && r.err == nil:
		r.logger.Error(err, "Failed to read manifest directory, keeping its last objects", "dir", r.config.Dir)
	case err == nil && r.err != nil:
		r.logger.Info("Manifest directory is readable again", "dir", r.config.Dir)
	}
	if r.err = err; err != nil {
		return
	}
	if r.deliver() {
		r.config.Handler.Sync()
	}
}

// read updates the state from the directory and logs the differences.
func (r *run) read() error {
	snap, err := takeSnapshot(r.config.Dir)
	if err != nil {
		return err
	}
	r.last = snap.listing
	r.state.read(snap, r.logger)
	return nil
}

// deliver calls the handler for all changes. It reports whether there were
// any.
func (r *run) deliver() bool {
	all := r.state.takeChanges()
	cidrs, cidrsChanged := r.state.takeServiceCIDRs()
	if cidrsChanged {
		r.config.Handler.OnServiceCIDRsChanged(cidrs)
	}
	delivered := cidrsChanged
	for _, c := range all {
		delivered = c.deliver(r.config.Handler) || delivered
	}
	return delivered
}
