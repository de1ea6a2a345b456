package result

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
)

// line is one of a plot.
type line struct {
	name   string
	points plotter.XYs
	color  color.Color
	dashed bool
}

// palette is told apart by people of all kinds of colour vision.
func palette(proxy string) color.Color {
	if proxy == "kube-proxy" {
		return color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}
	}
	return color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}
}

var grey = color.Gray{Y: 0x80}

// WriteAll writes the result as JSON, as a table and as plots into a folder.
func (r *Result) WriteAll(folder string) error {
	return benchmark.WriteFiles(folder, "scale", r, r.plots(), 16*vg.Centimeter, 10*vg.Centimeter)
}

// plots returns all plots for which there are figures, by name.
func (r *Result) plots() map[string]*plot.Plot {
	const replaced = EndpointReplaced
	all := map[string]*plot.Plot{
		"change": r.bySize("One endpoint replaced: API write to commit, p50", seconds, append(
			r.lines("", false, func(run *Run) float64 { return run.change(replaced).Times.P50 }),
			r.floor(func(run *Run) float64 { return run.change(replaced).Floor.P50 }))...),
		"start": r.bySize("Start until all rows are there, p50", seconds, append(
			r.lines("cold start", false, func(run *Run) float64 { return run.ColdStart.Times.P50 }),
			r.lines("restart", true, func(run *Run) float64 { return run.Restart.Times.P50 })...)...),
		"cpu": r.bySize("CPU time for one endpoint replaced", seconds,
			r.lines("", false, func(run *Run) float64 { return run.change(replaced).CPU })...),
		"memory": r.bySize("Memory after changes (VmRSS), and the most with children", bytes, append(
			r.lines("process", false, func(run *Run) float64 { return float64(run.Memory.Changes.RSS) }),
			r.lines("with children", true, func(run *Run) float64 { return float64(run.Memory.Changes.Tree) })...)...),
		"burst": r.bySize("1 % of the Services changed at once: until all are committed, p50", seconds, append(
			r.lines("", false, func(run *Run) float64 { return run.Burst.Times.P50 }),
			r.floor(func(run *Run) float64 { return run.Burst.Floor.P50 }))...),
	}
	if p := r.churnPlot(); p != nil {
		all["churn"] = p
	}
	return all
}

// change returns the figures of a kind, zero if there are none.
func (r *Run) change(kind Kind) *Change {
	if c := r.Changes[kind]; c != nil {
		return c
	}
	return new(Change)
}

// lines returns a line a proxy. Sizes of another number of endpoints than the first one's are left out.
func (r *Result) lines(what string, dashed bool, value func(*Run) float64) []line {
	var out []line
	for _, run := range r.Runs {
		if run.Endpoints != r.Runs[0].Endpoints {
			continue
		}
		name := run.Proxy
		if what != "" {
			name += ", " + what
		}
		i := slices.IndexFunc(out, func(l line) bool { return l.name == name })
		if i < 0 {
			i = len(out)
			out = append(out, line{name: name, color: palette(run.Proxy), dashed: dashed})
		}
		out[i].points = append(out[i].points, plotter.XY{X: float64(run.Services), Y: value(run)})
	}
	return out
}

// floor returns the line of the watch alone, the shortest of those of all proxies.
func (r *Result) floor(value func(*Run) float64) line {
	least := map[float64]float64{}
	for _, l := range r.lines("", true, value) {
		for _, point := range l.points {
			if old, ok := least[point.X]; !ok || point.Y < old {
				least[point.X] = point.Y
			}
		}
	}
	out := line{name: "watch alone", color: grey, dashed: true}
	for x, y := range least {
		out.points = append(out.points, plotter.XY{X: x, Y: y})
	}
	slices.SortFunc(out.points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	return out
}

// bySize draws lines over the number of Services, both on logarithmic scales.
func (r *Result) bySize(title string, show func(float64) string, lines ...line) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "Services"
	if len(r.Runs) > 0 {
		p.X.Label.Text = fmt.Sprintf("Services of %d endpoints", r.Runs[0].Endpoints)
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades(func(v float64) string { return fmt.Sprint(int(v)) })
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades(show)
	drawLines(p, lines)
	// Whole decades, so that there are labels at both ends.
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))), math.Pow(10, math.Ceil(math.Log10(p.Y.Max)))
	p.X.Min, p.X.Max = p.X.Min/1.2, p.X.Max*1.4 // room for the last label
	return p
}

// churnPlot draws the part of the changes that took no longer than a time.
func (r *Result) churnPlot() *plot.Plot {
	var lines []line
	title := ""
	for _, run := range r.Runs {
		if run.Churn == nil {
			continue
		}
		title = fmt.Sprintf("%d changes a second, %d Services: part committed within a time", run.Churn.Rate, run.Services)
		l := line{name: run.Proxy, color: palette(run.Proxy)}
		for i, at := range run.Churn.Percentiles {
			l.points = append(l.points, plotter.XY{X: at, Y: float64(i)})
		}
		lines = append(lines, l)
	}
	if lines == nil {
		return nil
	}
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "API write to commit", "%"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades(seconds)
	drawLines(p, lines)
	p.Y.Min, p.Y.Max = 0, 100
	p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(p.X.Min))), math.Pow(10, math.Ceil(math.Log10(p.X.Max)))
	return p
}

// drawLines adds the lines that can be on logarithmic scales: figures of 0 are left out.
func drawLines(p *plot.Plot, lines []line) {
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	for _, l := range lines {
		points := slices.DeleteFunc(slices.Clone(l.points), func(point plotter.XY) bool { return point.X <= 0 || point.Y <= 0 })
		if len(points) == 0 {
			continue
		}
		drawn := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: l.color, Width: vg.Points(1.5)}}
		if l.dashed {
			drawn.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(drawn)
		p.Legend.Add(l.name, drawn)
		if len(points) < 50 {
			glyphs := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: l.color, Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}}
			p.Add(glyphs)
		}
	}
	if p.X.Min > p.X.Max { // there is nothing to draw
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 1, 10, 1, 10
	}
}

// decades labels the powers of ten.
type decades func(float64) string

// Ticks implements plot.Ticker.
func (d decades) Ticks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for value := math.Pow(10, math.Floor(math.Log10(least))); value <= most*1.0001; value *= 10 {
		if value >= least*0.9999 {
			ticks = append(ticks, plot.Tick{Value: value, Label: d(value)})
		}
		for part := 2.0; part < 10; part++ {
			if minor := value * part; minor >= least && minor <= most {
				ticks = append(ticks, plot.Tick{Value: minor})
			}
		}
	}
	return ticks
}
