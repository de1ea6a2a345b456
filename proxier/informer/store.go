package informer

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// store is the store of a client-go reflector. It keeps the translations of
// the objects. It calls set and remove immediately, in the goroutine of the
// reflector.
type store[N comparable, V any, O object] struct {
	kind   kind[N, V, O]
	set    func(V)
	remove func(N)
	synced atomic.Bool // the first list was delivered

	mu    sync.Mutex // held during the calls of set and remove
	items map[N]*translated[V]
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
	name, _ := s.kind.identify(item.value)
	s.drop(name)
	return nil
}

// Replace implements cache.ReflectorStore. It delivers the differences.
func (s *store[N, V, O]) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == nil {
		s.items = make(map[N]*translated[V], len(list))
	}
	left := maps.Clone(s.items)
	for _, obj := range list {
		item, err := s.item(obj)
		if err != nil {
			return err
		}
		delete(left, s.put(item))
	}
	for name := range left {
		s.drop(name)
	}
	s.synced.Store(true)
	return nil
}

// Resync implements cache.ReflectorStore. It delivers all objects.
func (s *store[N, V, O]) Resync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range slices.Collect(maps.Values(s.items)) {
		s.set(item.value)
	}
	return nil
}

// hasSynced reports whether the first list was delivered.
func (s *store[N, V, O]) hasSynced() bool { return s.synced.Load() }

// put delivers an object that is new or has a new version, and returns its
// name. After a connection loss, the reflector lists all objects again.
func (s *store[N, V, O]) put(item *translated[V]) (name N) {
	name, _ = s.kind.identify(item.value)
	if before := s.items[name]; before == nil || !s.kind.same(before, item) {
		s.items[name] = item
		s.set(item.value)
	}
	return name
}

func (s *store[N, V, O]) drop(name N) {
	if _, found := s.items[name]; found {
		delete(s.items, name)
		s.remove(name)
	}
}

// item returns the translation of an object from client-go, which is a
// translation from a list or an API object from a watch.
func (s *store[N, V, O]) item(obj any) (*translated[V], error) {
	switch o := obj.(type) {
	case *translated[V]:
		return o, nil
	case O:
		return s.kind.translated(o), nil
	}
	return nil, fmt.Errorf("%T is not a %s", obj, s.kind.name)
}
