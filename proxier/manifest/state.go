package manifest

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// state is what was read and delivered so far.
type state struct {
	serializer runtime.Decoder
	files      map[string]file              // by name
	inForce    map[objectKey]object         // what the files say together
	duplicates []problem                    // definitions that are not in force because of another one
	delivered  map[objectKey]runtime.Object // what the handler knows
	cidrs      []string                     // the service CIDRs that the handler knows
}

func newState() *state {
	return &state{serializer: newSerializer(), delivered: make(map[objectKey]runtime.Object)}
}

// read takes in a snapshot, and returns what is worth a line in the log.
func (s *state) read(taken snapshot) []news {
	var all []news
	files := make(map[string]file, len(taken.entries))
	for _, e := range taken.entries {
		before := s.files[e.name]
		before.name = e.name
		after := before.next(s.serializer, taken.contents[e.name])
		files[e.name] = after
		all = append(all, after.newsSince(before))
	}
	inForce, duplicates := merge(files, s.inForce)
	all = append(all, news{duplicates: unknownProblems(duplicates, s.duplicates)})
	s.files, s.inForce, s.duplicates = files, inForce, duplicates
	return all
}

// takeChanges returns what is in force and not delivered yet, and counts it as delivered.
func (s *state) takeChanges() []change {
	all := changes(s.delivered, s.inForce)
	for _, c := range all {
		if c.new == nil {
			delete(s.delivered, c.key)
		} else {
			s.delivered[c.key] = c.new
		}
	}
	return all
}

// takeServiceCIDRs returns the service CIDRs, and whether the handler knows others; it counts them as delivered.
func (s *state) takeServiceCIDRs() (cidrs []string, changed bool) {
	cidrs = serviceCIDRs(maps.Values(s.delivered))
	changed = !slices.Equal(cidrs, s.cidrs)
	s.cidrs = cidrs
	return cidrs, changed
}
