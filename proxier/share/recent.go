package share

import (
	"cmp"
	"container/heap"
	"iter"
)

// Recent keeps the last things of all namespaces. When it is full, a new thing
// displaces the oldest one of the namespace that has most. So a namespace alone
// can have all of it, and one with few things keeps them, however many others
// get.
type Recent[T any] struct {
	max, n int
	number int // of the next thing
	names  map[string]*recent[T]
	most   mostFirst[T] // the values of names
}

// recent are the things of a namespace, the oldest first.
type recent[T any] struct {
	namespace string
	things    []numbered[T]
	place     int // in Recent.most
}

type numbered[T any] struct {
	number int
	thing  T
}

// NewRecent returns a Recent of at most n things.
func NewRecent[T any](n int) *Recent[T] {
	return &Recent[T]{max: n, names: make(map[string]*recent[T])}
}

// Add adds a thing of a namespace. It returns the thing that this displaces; ok
// is false if there is none.
func (r *Recent[T]) Add(namespace string, thing T) (displaced T, ok bool) {
	if r.n == r.max {
		displaced, ok = r.displace(), true
	}
	of := r.names[namespace]
	if of == nil {
		of = &recent[T]{namespace: namespace}
		r.names[namespace] = of
		of.things = append(of.things, numbered[T]{r.number, thing})
		heap.Push(&r.most, of)
	} else {
		of.things = append(of.things, numbered[T]{r.number, thing})
		heap.Fix(&r.most, of.place)
	}
	r.n++
	r.number++
	return displaced, ok
}

// displace removes the oldest thing of the namespace that has most.
func (r *Recent[T]) displace() T {
	of := r.most[0]
	thing := of.things[0].thing
	of.things = append(of.things[:0], of.things[1:]...)
	if len(of.things) == 0 {
		heap.Pop(&r.most)
		delete(r.names, of.namespace)
	} else {
		heap.Fix(&r.most, 0)
	}
	r.n--
	return thing
}

// All iterates over all things, in no particular order.
func (r *Recent[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, of := range r.most {
			for _, t := range of.things {
				if !yield(t.thing) {
					return
				}
			}
		}
	}
}

// mostFirst is a heap of namespaces. The first one has most things; of several,
// the one with the oldest.
type mostFirst[T any] []*recent[T]

func (m mostFirst[T]) Len() int { return len(m) }

func (m mostFirst[T]) Less(i, j int) bool {
	a, b := m[i].things, m[j].things
	return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0].number, b[0].number)) < 0
}

func (m mostFirst[T]) Swap(i, j int) {
	m[i], m[j] = m[j], m[i]
	m[i].place, m[j].place = i, j
}

// Push implements heap.Interface.
func (m *mostFirst[T]) Push(of any) {
	one := of.(*recent[T])
	one.place = len(*m)
	*m = append(*m, one)
}

// Pop implements heap.Interface.
func (m *mostFirst[T]) Pop() any {
	last := len(*m) - 1
	of := (*m)[last]
	(*m)[last] = nil
	*m = (*m)[:last]
	return of
}
