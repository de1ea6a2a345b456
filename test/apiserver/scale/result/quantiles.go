package result

import (
	"math"
	"slices"
	"time"
)

// Quantiles are those of a sample, in seconds. The 99th percentile of fewer than a hundred values is the largest.
type Quantiles struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// QuantilesOf returns the quantiles of a sample; all are 0 if it is empty.
func QuantilesOf(sample []time.Duration) Quantiles {
	sorted := slices.Sorted(slices.Values(sample))
	return Quantiles{N: len(sorted), P50: quantile(sorted, 0.5), P99: quantile(sorted, 0.99), Max: quantile(sorted, 1)}
}

// Percentiles returns those from 0 to 100.
func Percentiles(sample []time.Duration) []float64 {
	sorted := slices.Sorted(slices.Values(sample))
	out := make([]float64, 101)
	for i := range out {
		out[i] = quantile(sorted, float64(i)/100)
	}
	return out
}

// quantile returns the smallest value that at least that part of the sorted sample does not exceed.
func quantile(sorted []time.Duration, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(part * float64(len(sorted))))
	return sorted[max(rank, 1)-1].Seconds()
}
