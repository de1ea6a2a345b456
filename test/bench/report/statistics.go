package report

import (
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Sample is a list of measured values. Times are in seconds.
type Sample []float64

// Interval is a range of values.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Add adds a time.
func (s *Sample) Add(d time.Duration) { *s = append(*s, d.Seconds()) }

// Quantile returns the smallest value that is not exceeded by at least that
// part of the sample; 0 if the sample is empty.
func (s Sample) Quantile(part float64) float64 {
	if len(s) == 0 {
		return 0
	}
	return stat.Quantile(part, stat.Empirical, slices.Sorted(slices.Values(s)), nil)
}

// Median returns the lower median.
func (s Sample) Median() float64 { return s.Quantile(0.5) }

// Mean returns the mean; 0 if the sample is empty.
func (s Sample) Mean() float64 { return floats.Sum(s) / max(1, float64(len(s))) }

// Spread returns the 10th and the 90th percentile.
func (s Sample) Spread() Interval { return Interval{s.Quantile(0.1), s.Quantile(0.9)} }

// MedianInterval returns values of a sample between which the true median is
// with a probability of 95 %, whatever the distribution. Of fewer than 6 values
// it returns the least and the greatest, which has a smaller probability.
func (s Sample) MedianInterval() Interval {
	sorted := slices.Sorted(slices.Values(s))
	cut := outside(len(sorted))
	return Interval{sorted[cut], sorted[len(sorted)-1-cut]}
}

// outside returns how many of n values can be left out at each end so that the
// others enclose the true median with a probability of 95 %.
func outside(n int) int {
	const aside = 0.025 // at each end
	// The number of values below the median is distributed as heads in n throws
	// of a coin.
	heads, k := distuv.Binomial{N: float64(n), P: 0.5}, 0
	for k < n/2 && heads.CDF(float64(k)) <= aside {
		k++
	}
	return max(k-1, 0)
}

// Over returns the ratios to others of the same index. It leaves out values
// that have no other, or the other 0.
func (s Sample) Over(others Sample) (ratios Sample) {
	for i, value := range s {
		if i < len(others) && others[i] != 0 {
			ratios = append(ratios, value/others[i])
		}
	}
	return ratios
}
