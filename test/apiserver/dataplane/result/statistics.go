package result

import (
	"math"
	"slices"
)

// Spread is how values lie: the middle one, and between which ones four fifths of them are.
type Spread struct {
	Low    float64 `json:"low"` // 10th percentile
	Median float64 `json:"median"`
	High   float64 `json:"high"` // 90th percentile
}

// SpreadOf returns the spread of values; all are 0 if there are none.
func SpreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	return Spread{Low: quantile(sorted, 0.1), Median: quantile(sorted, 0.5), High: quantile(sorted, 0.9)}
}

// Ratio is the median of ratios, and between which ones of them the true median is with a probability of 95 % (by their order, whatever their
// distribution is; of fewer than 6 the least and the greatest, with a smaller probability).
type Ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// RatioOf compares values with others of the same rounds. It is nil if there is nothing to compare.
func RatioOf(values, others []float64) *Ratio {
	var ratios []float64
	for i, value := range values {
		if i < len(others) && others[i] != 0 {
			ratios = append(ratios, value/others[i])
		}
	}
	if ratios == nil {
		return nil
	}
	slices.Sort(ratios)
	cut := outside(len(ratios))
	return &Ratio{Median: quantile(ratios, 0.5), Low: ratios[cut], High: ratios[len(ratios)-1-cut]}
}

// outside returns how many of n values can be left out at each end so that the others enclose the true median with a probability of 95 %.
func outside(n int) int {
	const aside = 0.025 // at each end
	// The number of values below the median is that of heads in n throws of a coin.
	term, sum, k := math.Exp2(-float64(n)), 0.0, 0
	for ; k <= n/2; k++ {
		if sum += term; sum > aside {
			break
		}
		term *= float64(n-k) / float64(k+1)
	}
	return max(k-1, 0)
}

// quantile returns the smallest value that at least that part of the sorted ones does not exceed.
func quantile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(part * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
