package result

import (
	"math"
	"testing"
)

func TestSpreadOf(t *testing.T) {
	var hundred []float64
	for i := 100; i > 0; i-- {
		hundred = append(hundred, float64(i))
	}
	for _, c := range []struct {
		name   string
		values []float64
		want   Spread
	}{
		{"nothing", nil, Spread{}},
		{"one", []float64{7}, Spread{7, 7, 7}},
		{"three, in any order", []float64{3, 1, 2}, Spread{1, 2, 3}},
		{"a hundred", hundred, Spread{10, 50, 90}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := SpreadOf(c.values); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// The ranks of the confidence interval of a median are in every table of the sign test.
func TestOutside(t *testing.T) {
	for n, want := range map[int]int{1: 0, 5: 0, 6: 0, 8: 0, 9: 1, 10: 1, 11: 1, 12: 2, 20: 5, 30: 9, 50: 17, 100: 39} {
		if got := outside(n); got != want {
			t.Errorf("of %d values %d are outside at each end, want %d", n, got, want)
		}
	}
}

func TestRatioOf(t *testing.T) {
	ten := []float64{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
	ones := []float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	for _, c := range []struct {
		name           string
		values, others []float64
		want           *Ratio
	}{
		{"nothing", nil, nil, nil},
		{"nothing to compare with", ten, nil, nil},
		{"the least and the greatest of ten are outside", ten, ones, &Ratio{14, 11, 18}},
		{"each with its own", []float64{2, 40, 600}, []float64{1, 10, 100}, &Ratio{4, 2, 6}},
		{"what took no time is left out", []float64{2, 4}, []float64{0, 2}, &Ratio{2, 2, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := RatioOf(c.values, c.others)
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-12 }
