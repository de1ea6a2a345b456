package informer

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// object is an object of the API.
type object interface {
	runtime.Object
	metav1.Object
	Unmarshal(protobuf []byte) error
}

// translated is what is kept of an object of which there are many: what a handler is told, and what tells its versions apart. It goes through
// client-go in the place of the object.
type translated[N comparable, V any] struct {
	name    N
	version string
	uid     types.UID
	value   V
}

func newTranslated[N comparable, V any](name N, o metav1.Object, value V) *translated[N, V] {
	return &translated[N, V]{name: name, version: o.GetResourceVersion(), uid: o.GetUID(), value: value}
}

// GetObjectKind implements runtime.Object.
func (t *translated[N, V]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody modifies it, so that it is its own copy.
func (t *translated[N, V]) DeepCopyObject() runtime.Object { return t }

// kind is a kind of objects of which there are many.
type kind[N comparable, V any, O object] struct {
	name      string // as in error messages
	new       func() O
	translate func(O) *translated[N, V]
}

// store is what a reflector of client-go fills with the objects of a kind. It keeps the translations only, and tells of a change at once, in the
// goroutine of the reflector.
type store[N comparable, V any, O object] struct {
	kind   kind[N, V, O]
	set    func(V)
	remove func(N)
	filled atomic.Bool // says whether a first list was told

	mu    sync.Mutex // held while it tells
	items map[N]*translated[N, V]
}

var _ cache.ReflectorStore = (*store[string, int, object])(nil)

// Add implements cache.ReflectorStore.
func (s *store[N, V, O]) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *store[N, V, O]) Update(obj any) error {
	item, err := s.item(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(item)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *store[N, V, O]) Delete(obj any) error {
	item, err := s.item(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(item.name)
	return nil
}

// Replace implements cache.ReflectorStore: it tells the difference to what was there.
func (s *store[N, V, O]) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == nil {
		s.items = make(map[N]*translated[N, V], len(list))
	}
	left := maps.Clone(s.items)
	for _, obj := range list {
		item, err := s.item(obj)
		if err != nil {
			return err
		}
		delete(left, item.name)
		s.put(item)
	}
	for name := range left {
		s.drop(name)
	}
	s.filled.Store(true)
	return nil
}

// Resync implements cache.ReflectorStore: it tells everything again.
func (s *store[N, V, O]) Resync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range slices.Collect(maps.Values(s.items)) {
		s.set(item.value)
	}
	return nil
}

// told says whether everything was told that there was at first.
func (s *store[N, V, O]) told() bool { return s.filled.Load() }

// put tells of an object that is new or has another version. After the API server was away, all are listed again.
func (s *store[N, V, O]) put(item *translated[N, V]) {
	if before := s.items[item.name]; before != nil && before.version == item.version && before.uid == item.uid {
		return
	}
	s.items[item.name] = item
	s.set(item.value)
}

func (s *store[N, V, O]) drop(name N) {
	if _, is := s.items[name]; is {
		delete(s.items, name)
		s.remove(name)
	}
}

// item returns the translation of what client-go hands over: a translation, or an object of the API.
func (s *store[N, V, O]) item(obj any) (*translated[N, V], error) {
	switch o := obj.(type) {
	case *translated[N, V]:
		return o, nil
	case O:
		return s.kind.translate(o), nil
	}
	return nil, fmt.Errorf("%T is no %s", obj, s.kind.name)
}
