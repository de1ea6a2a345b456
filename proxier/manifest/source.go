package manifest

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// Config is what a Source needs; all of it is required.
type Config struct {
	Dir     string  // the directory that holds the manifests
	Handler Handler // receives what they say
}

// Source delivers the objects in a directory of manifests.
type Source struct {
	dir     string
	handler Handler
}

// New returns a Source, which does nothing until Run.
func New(config Config) *Source {
	return &Source{dir: config.Dir, handler: config.Handler}
}

// Run reads the directory, delivers what it finds, and then every change, until the context ends. It returns
// an error only if the directory cannot be read to begin with; whatever goes wrong later is logged, and what
// was delivered stays. It logs to the context's logger, or klog's.
func (s *Source) Run(ctx context.Context) error {
	r := &run{
		Source: s,
		logger: klog.LoggerWithName(klog.FromContext(ctx), "manifest"),
		watch:  newWatch(s.dir),
		state:  newState(),
	}
	defer r.watch.close()
	if err := r.begin(); err != nil {
		return err
	}
	looks := time.NewTicker(interval)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.watch.changed:
		case <-looks.C:
			if r.unchanged() {
				continue
			}
		}
		settle(ctx, r.watch.changed)
		r.proceed()
	}
}

// run is one call of Run.
type run struct {
	*Source
	logger klog.Logger
	watch  *watch
	state  *state
	last   listing // of the last read
	err    error   // why the directory cannot be read
}

// begin reads the directory for the first time and delivers all there is.
func (r *run) begin() error {
	// The watch comes first: what changes while the directory is read is not lost.
	r.watch.follow(r.logger)
	if err := r.read(); err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	r.deliver()
	r.handler.OnNodeSynced()
	r.handler.OnServiceSynced()
	r.handler.OnEndpointSlicesSynced()
	r.handler.Sync()
	return nil
}

// unchanged tells whether nothing is to be seen that calls for another read.
func (r *run) unchanged() bool {
	r.watch.follow(r.logger)
	now, err := list(r.dir)
	if err != nil {
		return r.err != nil
	}
	return r.err == nil && now.same(r.last)
}

// proceed reads the directory again and delivers what changed.
func (r *run) proceed() {
	r.watch.follow(r.logger)
	err := r.read()
	switch {
	case err != nil && r.err == nil:
		r.logger.Error(err, "Cannot read manifest directory, what it held last stays in force", "dir", r.dir)
	case err == nil && r.err != nil:
		r.logger.Info("Manifest directory can be read again", "dir", r.dir)
	}
	if r.err = err; err != nil {
		return
	}
	if r.deliver() {
		r.handler.Sync()
	}
}

// read takes in the directory as it is now.
func (r *run) read() error {
	taken, err := takeSnapshot(r.dir)
	if err != nil {
		return err
	}
	r.last = taken.listing
	for _, n := range r.state.read(taken) {
		n.log(r.logger)
	}
	return nil
}

// deliver passes on what the handler does not know yet, and tells whether there was anything.
func (r *run) deliver() bool {
	all := r.state.takeChanges()
	cidrs, cidrsChanged := r.state.takeServiceCIDRs()
	if cidrsChanged {
		r.handler.OnServiceCIDRsChanged(cidrs)
	}
	delivered := cidrsChanged
	for _, c := range all {
		delivered = c.deliver(r.handler) || delivered
	}
	return delivered
}
