package share

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// fill takes things for a namespace until its share is used up.
func fill(l *Limit, namespace string) (n int) {
	for l.Take(namespace, 1) {
		n++
	}
	return n
}

// A namespace alone gets half of a limit. While other namespaces take all they
// can get, a namespace gets about as much as each of them, as soon as they
// returned what they had before it came.
func TestLimit(t *testing.T) {
	const max = 1 << 13
	for _, others := range []int{0, 1, 2, 9, 99} {
		l := NewLimit(max)
		for i := range others {
			fill(l, fmt.Sprint(i))
		}
		first := fill(l, "newcomer")
		if want := max >> (others + 1); first < want {
			t.Errorf("%d others: got %d at once, want at least %d", others, first, want)
		}
		for range 20 * max { // the others return things and take them again
			name := fmt.Sprint(rand.IntN(max) % (others + 1)) // the last one has nothing
			if l.held[name] > 0 {
				l.Return(name, 1)
				fill(l, "newcomer")
				fill(l, name)
			}
		}
		equal := max / (others + 2)
		if got := l.held["newcomer"]; got < equal-equal/20-1 {
			t.Errorf("%d others: got %d, want about %d", others, got, equal)
		}
		if l.left < equal-equal/20-1 {
			t.Errorf("%d others: %d are left, want about %d", others, l.left, equal)
		}
	}
}

// Random namespaces never hold more than the limit. When all is returned,
// nothing of them is left.
func TestLimitHolds(t *testing.T) {
	const max = 100
	r := rand.New(rand.NewPCG(1, 2))
	l, held := NewLimit(max), make(map[string]int)
	for range 20_000 {
		name, n := fmt.Sprint(r.IntN(8)), 1+r.IntN(30)
		sum := 0
		for _, n := range held {
			sum += n
		}
		fits := held[name]+n <= max-sum
		switch got := l.Take(name, n); {
		case got != fits:
			t.Fatalf("%s has %d of %d and takes %d: got %t, want %t", name, held[name], sum, n, got, fits)
		case got:
			held[name] += n
		case held[name] > 0:
			l.Return(name, held[name])
			held[name] = 0
		}
	}
	for name, n := range held {
		l.Return(name, n)
	}
	if l.left != max || len(l.held) != 0 {
		t.Errorf("after the end: %d are left and %v are held, want %d and none", l.left, l.held, max)
	}
}

// Namespaces that always want a token get the same number of them, which
// together is the rate. A namespace that comes later gets as many at once.
func TestRate(t *testing.T) {
	const burst, perSecond = 50, 0.1
	for _, floods := range []int{1, 2, 5, 20} {
		r := NewRate(burst, perSecond)
		now := time.Unix(1_700_000_000, 0)
		used := make(map[string]int)
		flood := func(d time.Duration, others ...string) {
			for end := now.Add(d); now.Before(end); now = now.Add(time.Second) {
				for i := range floods {
					if name := fmt.Sprint(i); r.Use(name, now) {
						used[name]++
					}
				}
				for _, name := range others {
					if r.Use(name, now) {
						used[name]++
					}
				}
			}
		}
		flood(time.Second)
		for range burst { // all at once
			flood(0)
			for i := range floods {
				if name := fmt.Sprint(i); r.Use(name, now) {
					used[name]++
				}
			}
		}
		if got := used["0"]; got > burst/2 {
			t.Errorf("%d namespaces: the first one used %d tokens at once, want at most %d", floods, got, burst/2)
		}
		flood(2 * time.Hour)

		clear(used)
		flood(10 * time.Hour)
		const all = 10 * 3600 * perSecond
		sum := 0
		for name, n := range used {
			sum += n
			if want := all / floods; n < want*8/10 || n > want*12/10 {
				t.Errorf("%d namespaces: %s used %d tokens, want about %d", floods, name, n, want)
			}
		}
		if sum < all-2 || sum > all+2 {
			t.Errorf("%d namespaces used %d tokens, want %d", floods, sum, int(all))
		}

		if !r.Use("newcomer", now) {
			t.Errorf("%d namespaces: got no token for a namespace that used none", floods)
		}
		clear(used)
		flood(10*time.Hour, "newcomer")
		if got, want := used["newcomer"], all/(floods+1); got < want*8/10 {
			t.Errorf("%d namespaces: got %d tokens for another one, want about %d", floods, got, want)
		}
	}
}

// Many namespaces use no more tokens than a few, and the memory for them is
// bounded.
// TestCharge uses more than is left: all wait until the tokens have come again.
func TestCharge(t *testing.T) {
	r, now := NewRate(10, 1), time.Unix(1_700_000_000, 0)
	if !r.UseSome("a", 2, now) {
		t.Fatal("got no tokens of a full rate")
	}
	r.Charge("a", 18, now)
	if r.Use("b", now.Add(9*time.Second)) {
		t.Error("got a token for another namespace after 9 s")
	}
	if !r.Use("a", now.Add(30*time.Second)) {
		t.Error("got no token after 30 s")
	}
}

func TestManyNamespaces(t *testing.T) {
	const burst, perSecond = 50, 10
	r := NewRate(burst, perSecond)
	now, used, most := time.Unix(1_700_000_000, 0), 0, 0
	for i := range 100_000 {
		now = now.Add(time.Millisecond)
		if r.Use(fmt.Sprint(i), now) {
			used++
		}
		most = max(most, len(r.used))
	}
	if want := burst + 100*perSecond; used > want || used < want*9/10 {
		t.Errorf("got %d tokens, want %d", used, want)
	}
	if want := 30 * burst; most > want {
		t.Errorf("knew %d namespaces, want at most %d", most, want)
	}
}

// All get the same part at most. What some do not want is for the others.
func TestPart(t *testing.T) {
	for _, tt := range []struct {
		max    int
		wanted []int
		want   int
	}{
		{10, nil, math.MaxInt},
		{10, []int{3, 7}, math.MaxInt},
		{10, []int{11}, 10},
		{10, []int{100, 100}, 5},
		{10, []int{100, 2}, 8},
		{10, []int{1, 100, 2, 100}, 3},
		{3, []int{1, 1, 1, 100}, 0},
		{0, []int{1}, 0},
	} {
		if got := Part(tt.max, tt.wanted); got != tt.want {
			t.Errorf("Part(%d, %v): got %d, want %d", tt.max, tt.wanted, got, tt.want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		limit, wanted := r.IntN(1000), make([]int, r.IntN(20))
		all := 0
		for i := range wanted {
			wanted[i] = r.IntN(200)
			all += wanted[i]
		}
		part, given, more := Part(limit, wanted), 0, 0
		for _, n := range wanted {
			given += min(n, part)
			more += min(n, min(part, 1000)+1)
		}
		if given > limit || part != math.MaxInt && more <= limit || all <= limit && given != all {
			t.Fatalf("Part(%d, %v): got %d, which is too much or too little", limit, wanted, part)
		}
	}
}
