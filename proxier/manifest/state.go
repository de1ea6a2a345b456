package manifest

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
)

// state is everything that was read and delivered so far.
type state struct {
	decoder    runtime.Decoder
	files      map[string]file              // by name
	active     map[objectKey]object         // the desired objects
	duplicates []problem                    // definitions that are not active
	delivered  map[objectKey]runtime.Object // the objects that the handler has
	cidrs      []string                     // the service CIDRs that the handler has
}

func newState() *state {
	return &state{decoder: newDecoder(), delivered: make(map[objectKey]runtime.Object)}
}

// read updates the active objects from a snapshot, and logs what is new.
func (s *state) read(snap snapshot, logger klog.Logger) {
	files := make(map[string]file, len(snap.entries))
	for _, e := range snap.entries {
		before := s.files[e.name]
		before.name = e.name
		after := before.next(s.decoder, snap.contents[e.name])
		files[e.name] = after
		after.logSince(before, logger)
	}
	active, duplicates := merge(files, s.active)
	logProblems(logger, "Object is defined more than once", duplicates, s.duplicates)
	s.files, s.active, s.duplicates = files, active, duplicates
}

// takeChanges returns the changes to deliver, and marks them as delivered.
func (s *state) takeChanges() []change {
	all := changes(s.delivered, s.active)
	for _, c := range all {
		if c.new == nil {
			delete(s.delivered, c.key)
		} else {
			s.delivered[c.key] = c.new
		}
	}
	return all
}

// deliver calls the handler for all changes. It reports whether there were any.
func (s *state) deliver(h Handler) (delivered bool) {
	all := s.takeChanges()
	if cidrs := serviceCIDRs(maps.Values(s.delivered)); !slices.Equal(cidrs, s.cidrs) {
		s.cidrs, delivered = cidrs, true
		h.OnServiceCIDRsChanged(cidrs)
	}
	for _, c := range all {
		delivered = c.deliver(h) || delivered
	}
	return delivered
}
