package manifest

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

// read updates the active objects from a snapshot that was taken now, and logs
// what is new.
func (s *state) read(snap snapshot, now time.Time, logger klog.Logger) {
	files := make(map[string]file, len(snap.entries))
	for _, e := range snap.entries {
		before := s.files[e.name]
		before.name = e.name
		after := before.next(s.decoder, snap.contents[e.name], now)
		files[e.name] = after
		after.logSince(before, logger)
	}
	active, duplicates := merge(files, s.active)
	setSince(duplicates, s.duplicates, now)
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

// change is a difference between the delivered and the active objects: a new
// object if old is nil, a Delete if new is nil, otherwise an Update.
type change struct {
	key      objectKey
	old, new runtime.Object
}

// changes returns the differences in the order of delivery. Definitions that
// are equal cause no change, even if their file or document differs.
//
// All Updates, also of new objects, precede all Deletes. If an object is
// renamed, or an address moves from one Service to another, a handler that runs
// before Sync finds the address twice instead of not at all. For the same
// reason EndpointSlices are added before Services and deleted after them.
func changes(delivered map[objectKey]runtime.Object, active map[objectKey]object) []change {
	var result []change
	for key, o := range active {
		if old := delivered[key]; old != o.value && !equality.Semantic.DeepEqual(old, o.value) {
			result = append(result, change{key: key, old: old, new: o.value})
		}
	}
	for key, old := range delivered {
		if _, found := active[key]; !found {
			result = append(result, change{key: key, old: old})
		}
	}
	slices.SortFunc(result, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.phase(), b.phase()), a.key.compare(b.key))
	})
	return result
}

// phase returns the position of the change in a round.
func (c change) phase() int {
	kinds := []objectKind{kindNode, kindServiceCIDR, kindEndpointSlice, kindService}
	position := slices.Index(kinds, c.key.Kind)
	if c.new == nil {
		return 2*len(kinds) - position
	}
	return position
}

// deliver calls the handler's method for the change. It returns false for
// ServiceCIDRs, which are delivered together: see serviceCIDRs.
func (c change) deliver(h Handler) bool {
	switch c.key.Kind {
	case kindService:
		dispatch(c, h.OnServiceUpdate, h.OnServiceDelete)
	case kindEndpointSlice:
		dispatch(c, h.OnEndpointSliceUpdate, h.OnEndpointSliceDelete)
	case kindNode:
		dispatch(c, h.OnNodeUpdate, h.OnNodeDelete)
	default:
		return false
	}
	return true
}

func dispatch[T runtime.Object](c change, update func(old, new T), remove func(T)) {
	old, _ := c.old.(T) // nil for a new object
	if c.new == nil {
		remove(old)
		return
	}
	update(old, c.new.(T))
}

// serviceCIDRs returns the CIDRs of all ServiceCIDRs, sorted and without
// duplicates.
func serviceCIDRs(objects iter.Seq[runtime.Object]) (cidrs []string) {
	for value := range objects {
		if serviceCIDR, ok := value.(*networkingv1.ServiceCIDR); ok {
			cidrs = append(cidrs, serviceCIDR.Spec.CIDRs...)
		}
	}
	slices.Sort(cidrs)
	return slices.Compact(cidrs)
}

// file is the state of a manifest file. One version of it is active as a
// whole.
type file struct {
	name string
	// active is the last valid version. Without problems it is the last
	// version.
	active parsed
	// valid reports whether any version was valid.
	valid bool
	// problems are the reasons why the last version is not active.
	problems []problem
	// documents are the valid documents of the last version. They are reused
	// if they did not change.
	documents map[digest]parsed
	// sum is the digest of the last version, zero if it could not be read.
	sum digest
}

// digest identifies the content of a file or a document.
type digest [sha256.Size]byte

// digest returns a hash of everything that determines the objects of a valid
// document.
func (d document) digest() digest {
	if d.isJSON {
		return sha256.Sum256(append([]byte("JSON:"), d.data...))
	}
	return sha256.Sum256(d.data)
}

// next returns the state after a read at a time.
func (f file) next(decoder runtime.Decoder, read content, now time.Time) file {
	before := f.problems
	if read.err != nil {
		f.problems, f.sum = []problem{{place: place{file: f.name, item: noItem}, err: read.err}}, digest{}
	} else {
		f = f.parse(decoder, read.data)
	}
	setSince(f.problems, before, now)
	return f
}

// parse returns the state after a read of data.
func (f file) parse(decoder runtime.Decoder, data []byte) file {
	sum := digest(sha256.Sum256(data))
	if sum == f.sum {
		return f
	}
	f.sum = sum
	var version parsed
	documents := make(map[digest]parsed)
	for _, doc := range splitDocuments(data) {
		sum := doc.digest()
		result, known := f.documents[sum]
		if !known || doc.err != nil {
			result = parseDocument(decoder, doc)
		}
		if len(result.problems) == 0 {
			documents[sum] = result
		}
		version.append(result, f.name, doc)
		if len(version.problems) >= maxProblems {
			version.problems = append(version.problems, problem{
				place: place{file: f.name, item: noItem}, err: errProblems,
			})
			break
		}
	}
	f.documents = documents
	f.problems = version.problems
	if len(version.problems) == 0 {
		f.active, f.valid = version, true
	}
	return f
}

// merge returns the active objects of all files, and a problem for each
// definition of an object that has another active definition. active is the
// result of the previous merge.
//
// If an object is defined more than once, the definition in the file that had
// the active definition takes precedence, then the first file by name. Within
// a file the first definition takes precedence.
func merge(files map[string]file, active map[objectKey]object) (map[objectKey]object, []problem) {
	merged := make(map[objectKey]object, len(active))
	var duplicates []object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, candidate := range files[name].active.objects {
			rival, found := merged[candidate.key]
			switch {
			case !found:
				merged[candidate.key] = candidate
			case rival.file != candidate.file && active[candidate.key].file == candidate.file:
				merged[candidate.key] = candidate
				duplicates = append(duplicates, rival)
			default:
				duplicates = append(duplicates, candidate)
			}
		}
	}
	var problems []problem
	for _, duplicate := range duplicates {
		problems = append(problems, problem{
			place:   duplicate.place,
			subject: duplicate.key.String(),
			err:     fmt.Errorf("already defined in %s, which stays active", merged[duplicate.key].place),
		})
	}
	return merged, problems
}
