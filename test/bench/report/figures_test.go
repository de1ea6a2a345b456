package report

import (
	"slices"
	"testing"
)

func TestSample(t *testing.T) {
	var hundred Sample
	for i := 100; i > 0; i-- {
		hundred = append(hundred, float64(i))
	}
	for _, c := range []struct {
		name         string
		sample       Sample
		median, mean float64
		spread       Interval
	}{
		{"nothing", nil, 0, 0, Interval{}},
		{"one", Sample{7}, 7, 7, Interval{7, 7}},
		{"two", Sample{4, 2}, 2, 3, Interval{2, 4}},
		{"three, in any order", Sample{3, 1, 2}, 2, 2, Interval{1, 3}},
		{"a hundred", hundred, 50, 50.5, Interval{10, 90}},
	} {
		if median, spread := c.sample.Median(), c.sample.Spread(); median != c.median || spread != c.spread {
			t.Errorf("%s: got %v, %v, want %v, %v", c.name, median, spread, c.median, c.spread)
		}
		if mean := c.sample.Mean(); mean < c.mean-1e-9 || mean > c.mean+1e-9 {
			t.Errorf("%s: got mean %v, want %v", c.name, mean, c.mean)
		}
	}
	for part, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := hundred.Quantile(part); got != want {
			t.Errorf("quantile %v: got %v, want %v", part, got, want)
		}
	}
}

// The ranks of the confidence interval of a median are in tables of the sign
// test.
func TestOutside(t *testing.T) {
	for n, want := range map[int]int{1: 0, 5: 0, 6: 0, 8: 0, 9: 1, 10: 1, 11: 1, 12: 2, 20: 5, 30: 9, 50: 17, 100: 39} {
		if got := outside(n); got != want {
			t.Errorf("of %d values: got %d outside at each end, want %d", n, got, want)
		}
	}
	ten := Sample{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
	if got, want := ten.MedianInterval(), (Interval{11, 18}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestOver(t *testing.T) {
	if got, want := (Sample{2, 40, 600, 7}).Over(Sample{1, 10, 0}), (Sample{2, 4}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
