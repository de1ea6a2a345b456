package result

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
)

// WriteAll writes the result as JSON, as a table and as plots into a folder.
func (r *Result) WriteAll(folder string) error {
	return benchmark.WriteFiles(folder, "dataplane", r, r.plots(), width, height)
}

// plots returns the plots by name. A plot without figures is left out.
func (r *Result) plots() map[string]*plot.Plot {
	latency := func(f *Figure) Spread { return Spread{f.OfRounds.Low * 1e6, f.P50 * 1e6, f.OfRounds.High * 1e6} }
	rate := func(f *Figure) Spread {
		if f.PerSecond == nil {
			return Spread{}
		}
		return Spread{f.PerSecond.Low / 1e3, f.PerSecond.Median / 1e3, f.PerSecond.High / 1e3}
	}
	established := []string{EstablishedTCP, EstablishedUDP}
	all := map[string]*plot.Plot{}
	for _, one := range []struct {
		name, title, unit string
		traffic           []string
		value             func(*Figure) Spread
	}{
		{"latency", "A new connection: p50, and where the rounds' are", "µs", []string{TCP, UDP}, latency},
		{"rate", "New connections a second, on all processors", "thousands", []string{TCP, UDP}, rate},
		{
			"affinity", fmt.Sprintf("connect() with session affinity, %d endpoints: p50", r.Affinity), "µs",
			[]string{TCP, KnownClient, NewClient}, latency,
		},
		{"established", "A request over an established flow: p50, and the spread of the rounds", "µs", established, latency},
		{"requests", "Requests per second over an established flow, one thread", "thousands", established, rate},
	} {
		if p := r.bars(one.traffic, one.value); p != nil {
			p.Title.Text, p.Y.Label.Text = one.title, one.unit
			all[one.name] = p
		}
	}
	return all
}

// The size of plots, and the room in it for what is drawn.
const (
	width, height = 18 * vg.Centimeter, 10 * vg.Centimeter
	inner         = 16 * vg.Centimeter
	group         = 0.8 // part of the room of a variant that its bars take
)

// bars draws a group of bars a variant, with a bar for each path and traffic. Variants that have none of the last traffic are left out.
func (r *Result) bars(traffic []string, value func(*Figure) Spread) *plot.Plot {
	variants := r.variants(traffic[len(traffic)-1])
	if len(variants) == 0 {
		return nil
	}
	p := plot.New()
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	p.X.Tick.Label.Font.Size = vg.Points(8) // so that names of two lines do not meet
	var most float64
	cases := casesOf(traffic)
	for i, c := range cases {
		b := bar{name: c.String(), color: palette(i), offset: group * ((float64(i)+0.5)/float64(len(cases)) - 0.5)}
		b.width = inner * vg.Length(group/float64(len(cases)*len(variants)))
		for _, variant := range variants {
			b.spreads = append(b.spreads, value(r.find(variant, c)))
		}
		most = max(most, b.draw(p))
	}
	const legend = 1.08 // room for a line of the legend
	p.Y.Min, p.Y.Max = 0, most*math.Pow(legend, float64(len(cases)))
	var names []string
	for _, variant := range variants {
		names = append(names, strings.Replace(variant.String(), ", ", "\n", 1))
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.5, float64(len(variants))-0.4
	return p
}

// variants are those with figures for that traffic, in the order in which they are shown.
func (r *Result) variants(traffic string) (all []Variant) {
	for _, f := range r.Figures {
		if f.Traffic == traffic && !slices.Contains(all, f.Variant) {
			all = append(all, f.Variant)
		}
	}
	return all
}

// find returns the figure of a case, an empty one if there is none.
func (r *Result) find(v Variant, c Case) *Figure {
	for _, f := range r.Figures {
		if f.Variant == v && f.Case == c {
			return f
		}
	}
	return new(Figure)
}

// casesOf returns the cases of that traffic.
func casesOf(traffic []string) (out []Case) {
	for _, c := range Cases() {
		if slices.Contains(traffic, c.Traffic) {
			out = append(out, c)
		}
	}
	return out
}

// bar is a bar in every group.
type bar struct {
	name    string
	color   color.Color
	offset  float64 // from the middle of the group
	width   vg.Length
	spreads []Spread // of each group
}

// draw adds the bar to every group, with a line for the spread, and returns where the highest of them ends.
func (b bar) draw(p *plot.Plot) (most float64) {
	var values plotter.Values
	var spread struct {
		plotter.XYs
		plotter.YErrors
	}
	for i, s := range b.spreads {
		values = append(values, s.Median)
		spread.XYs = append(spread.XYs, plotter.XY{X: float64(i) + b.offset, Y: s.Median})
		spread.YErrors = append(spread.YErrors, struct{ Low, High float64 }{s.Median - s.Low, s.High - s.Median})
		most = max(most, s.Median, s.High)
	}
	bars, err := plotter.NewBarChart(values, b.width)
	if err != nil {
		return 0 // of no values
	}
	bars.XMin, bars.Color, bars.LineStyle.Width = b.offset, b.color, 0
	errors, err := plotter.NewYErrorBars(spread)
	if err != nil {
		return 0
	}
	errors.CapWidth = b.width / 3
	p.Add(bars, errors)
	p.Legend.Add(b.name, bars)
	return most
}

// palette is told apart by people of all kinds of colour vision.
func palette(i int) color.Color {
	all := []color.RGBA{
		{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, {R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, {R: 0xf0, G: 0xe4, B: 0x42, A: 0xff},
		{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, {R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, {R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
	}
	return all[i%len(all)]
}
