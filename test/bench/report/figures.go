package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Table is a list of rows. Its columns are the names of all figures, in the
// order in which they first appear.
type Table struct {
	Title string `json:"title"`
	Rows  []Row  `json:"rows"`
}

// Row is a list of figures with different names.
type Row []Figure

// Figure is a label or a value.
type Figure struct {
	Name  string  `json:"name"`
	Text  string  `json:"text,omitempty"` // of a label
	Unit  Unit    `json:"unit,omitempty"`
	Value float64 `json:"value"`
	// Interval encloses the value.
	Interval *Interval `json:"interval,omitempty"`
	// LowerBound reports that the true value is larger.
	LowerBound bool `json:"lowerBound,omitempty"`
}

// Unit is the unit of a value.
type Unit string

// The units.
const (
	Seconds Unit = "s"
	Bytes   Unit = "B"
	Count   Unit = ""
	Percent Unit = "%"
	// Change is a factor that is shown as a difference: 1.05 is +5.0 %.
	Change Unit = "ratio"
)

// Label returns a figure without a value.
func Label(name, text string) Figure { return Figure{Name: name, Text: text} }

type number interface{ int | int64 | uint64 | float64 }

// Value returns a figure.
func Value[N number](name string, unit Unit, value N) Figure {
	return Figure{Name: name, Unit: unit, Value: float64(value)}
}

// Number returns a figure without a unit.
func Number[N number](name string, value N) Figure { return Value(name, Count, value) }

// Time returns a quantile of a sample of times.
func Time(name string, of Sample, part float64) Figure {
	return Value(name, Seconds, of.Quantile(part))
}

// In returns the figure with an interval.
func (f Figure) In(i Interval) Figure {
	f.Interval = &i
	return f
}

// Add adds a row.
func (t *Table) Add(figures ...Figure) { t.Rows = append(t.Rows, figures) }

// write writes the table with aligned columns. Missing figures are blank.
func (t *Table) write(w io.Writer) {
	var head []string
	for _, row := range t.Rows {
		for _, f := range row {
			if !slices.Contains(head, f.Name) {
				head = append(head, f.Name)
			}
		}
	}
	const padding = 2
	aligned := tabwriter.NewWriter(w, 0, 0, padding, ' ', tabwriter.AlignRight)
	fmt.Fprintf(aligned, "%s\t\n", strings.Join(head, "\t"))
	for _, row := range t.Rows {
		cells := make([]string, len(head))
		for _, f := range row {
			cells[slices.Index(head, f.Name)] = f.String()
		}
		fmt.Fprintf(aligned, "%s\t\n", strings.Join(cells, "\t"))
	}
	aligned.Flush()
}

// String returns the text of the figure: "15.11 µs (14.71 to 21.41)".
func (f Figure) String() string {
	if f.Text != "" {
		return f.Text
	}
	text := f.Unit.format(f.Value)
	if f.LowerBound {
		text = "> " + text
	}
	if i := f.Interval; i != nil {
		low, high := f.Unit.format(i.Low), f.Unit.format(i.High)
		unit := " " + text[strings.LastIndex(text, " ")+1:]
		if strings.HasSuffix(low, unit) && strings.HasSuffix(high, unit) {
			low, high = strings.TrimSuffix(low, unit), strings.TrimSuffix(high, unit)
		}
		text += fmt.Sprintf(" (%s to %s)", low, high)
	}
	return text
}

func (u Unit) format(v float64) string {
	switch u {
	case Seconds:
		return scaled(v, prefix{1, "s"}, prefix{1e-3, "ms"}, prefix{1e-6, "µs"})
	case Bytes:
		return scaled(v, prefix{1e6, "MB"}, prefix{1e3, "kB"}, prefix{1, "B"})
	case Percent:
		return fmt.Sprintf("%.1f %%", v)
	case Change:
		return fmt.Sprintf("%+.1f %%", (v-1)*100)
	}
	return fmt.Sprintf("%.0f", v)
}

// prefix is a multiple of a unit.
type prefix struct {
	size float64
	name string
}

// scaled formats a value in the first unit that is not larger than the value,
// or in the last.
func scaled(v float64, units ...prefix) string {
	if v == 0 {
		return "0"
	}
	for len(units) > 1 && max(v, -v) < units[0].size {
		units = units[1:]
	}
	return fmt.Sprintf("%.4g %s", v/units[0].size, units[0].name)
}

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
