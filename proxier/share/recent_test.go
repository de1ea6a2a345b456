package share

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A namespace that gets many things displaces its own, and those of others only
// while they have more. The last things of each stay.
func TestRecent(t *testing.T) {
	const limit = 100
	r := NewRecent[string](limit)
	add := func(namespace string, n int) {
		for i := range n {
			r.Add(namespace, fmt.Sprint(namespace, i))
		}
	}
	count := func(namespace string) (n int) {
		for thing := range r.All() {
			if thing[0] == namespace[0] {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		namespace string
		n         int
		a, b, c   int // how many each has then
	}{
		{"a", 1000, 100, 0, 0}, {"b", 10, 90, 10, 0}, {"a", 1000, 90, 10, 0}, {"b", 1000, 50, 50, 0},
		{"c", 1, 49, 50, 1}, {"a", 1000, 50, 49, 1}, {"c", 1000, 34, 33, 33},
	} {
		add(step.namespace, step.n)
		got := []int{count("a"), count("b"), count("c")}
		want := []int{step.a, step.b, step.c}
		for i := range got { // of namespaces with equal numbers, either can have one more
			if d := got[i] - want[i]; d < -1 || d > 1 {
				t.Errorf("after %d of %s: got %v things of a, b and c, want %v", step.n, step.namespace, got, want)
				break
			}
		}
		if thing := fmt.Sprint(step.namespace, step.n-1); !slices.Contains(slices.Collect(r.All()), thing) {
			t.Errorf("the last thing %s is lost", thing)
		}
	}
}

// Random namespaces: never more than the limit, and a thing is displaced only
// if its namespace had at least as many as any other one.
func TestRecentIsFair(t *testing.T) {
	const limit = 50
	random := rand.New(rand.NewPCG(1, 2))
	r, has := NewRecent[string](limit), make(map[string]int)
	for i := range 20_000 {
		name := fmt.Sprint(min(random.IntN(200), random.IntN(20+i%100)))
		most, sum := 0, 0
		for _, n := range has {
			most, sum = max(most, n), sum+n
		}
		displaced, ok := r.Add(name, name)
		if ok != (sum == limit) || ok && has[displaced] != most {
			t.Fatalf("%d: displaced %q: %v, of %v", i, displaced, ok, has)
		}
		if has[name]++; ok {
			has[displaced]--
		}
	}
	if n := len(slices.Collect(r.All())); n != limit || len(r.names) > limit {
		t.Errorf("got %d things of %d namespaces, want %d", n, len(r.names), limit)
	}
}
