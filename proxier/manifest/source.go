package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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

// Reload makes Run read the directory at once and log all its problems, also
// those that it logged before. It does not wait. Any goroutine can call it.
func (s *Source) Reload() {
	select {
	case s.reload <- struct{}{}:
	default: // Run has not yet taken the previous one
	}
}

// readAgain reads the directory, delivers the changes and logs all problems.
func (s *Source) readAgain() {
	before := s.Status().Problems
	s.refresh()
	status := s.Status()
	s.logger.Info("Read manifest directory again", "dir", status.Dir, "files", status.Files,
		"objects", status.Objects, "problems", status.ProblemCount)
	for _, p := range status.Problems {
		if slices.Contains(before, p) { // otherwise refresh has logged it
			s.logger.Error(errors.New(p.Text), "Manifest problem still exists", "since", p.Since.Format(time.RFC3339))
		}
	}
}

// Handler receives the objects of the directory. Run calls it from its own
// goroutine. The objects are valid and must not be modified. The old object of
// an update is the pointer that was delivered before.
//
// The first round of calls is OnServiceCIDRsChanged if there are
// ServiceCIDRs, an Update call for each object, the three Synced calls, and
// Sync. Each later round has at least one change and ends with Sync. Within a
// round, objects are added and updated before others are deleted, and no
// Service is delivered without its EndpointSlices.
type Handler interface {
	// The old object is nil for a new one.
	OnServiceUpdate(old, new *corev1.Service)
	OnServiceDelete(service *corev1.Service)
	OnServiceSynced()

	OnEndpointSliceUpdate(old, new *discoveryv1.EndpointSlice)
	OnEndpointSliceDelete(slice *discoveryv1.EndpointSlice)
	OnEndpointSlicesSynced()

	// The Node methods are called for all Nodes, not only for this machine's.
	OnNodeUpdate(old, new *corev1.Node)
	OnNodeDelete(node *corev1.Node)
	OnNodeSynced()

	// OnServiceCIDRsChanged is called with the CIDRs of all ServiceCIDRs,
	// sorted and without duplicates.
	OnServiceCIDRsChanged(cidrs []string)

	// Sync ends a round. The objects delivered so far are the objects of the
	// directory.
	Sync()
}

// Report is the result of reading a directory once.
type Report struct {
	// Status has all problems.
	Status
	// Warnings are about objects that are served in part, or not at all, but
	// are no problems.
	Warnings []Problem `json:"warnings,omitempty"`
	// Invalid are the names of the files with an error. None of their objects
	// is active.
	Invalid []string `json:"invalid,omitempty"`
	// Ignored are the names of other files and of folders.
	Ignored []string `json:"ignored,omitempty"`

	state *state
}

// Check reads a directory and delivers its objects to a handler. It does not
// log.
func Check(dir string, to Handler) (*Report, error) {
	snap, err := takeSnapshot(dir)
	if err != nil {
		return nil, err
	}
	r := &Report{Ignored: snap.ignored, state: newState()}
	r.state.read(snap, time.Now(), klog.Logger{})
	r.state.deliver(to)
	r.Status = r.state.status(dir, r.state.problems())
	for _, e := range snap.entries {
		f := r.state.files[e.name]
		if !f.valid {
			r.Invalid = append(r.Invalid, e.name)
		}
		for _, w := range f.active.warnings {
			r.Warnings = append(r.Warnings, problem{
				place: w.place, subject: w.subject, err: errors.New(w.text),
			}.report(false))
		}
	}
	return r, nil
}

// At returns a problem of the active definition of an object.
func (r *Report) At(kind, namespace, name, text string) Problem {
	key := objectKey{Kind: objectKind(kind), Namespace: namespace, Name: name}
	return problem{place: r.state.active[key].place, subject: key.String(), err: errors.New(text)}.report(false)
}
