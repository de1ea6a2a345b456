package report

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Plot is a plot of lines or, if it has groups, of bars.
type Plot struct {
	Name  string `json:"name"` // of the file
	Title string `json:"title"`
	// XLabel and YLabel name the axes, X and Y are their units.
	XLabel string `json:"xLabel,omitempty"`
	YLabel string `json:"yLabel,omitempty"`
	X      Unit   `json:"xUnit,omitempty"`
	Y      Unit   `json:"yUnit,omitempty"`
	// Groups are the names of groups of bars. X of a point is an index.
	Groups []string  `json:"groups,omitempty"`
	Series []*Series `json:"series"`
}

// Series is a line, or a bar in every group.
type Series struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is a point of a line, or a bar with an interval.
type Point struct {
	X    float64   `json:"x"`
	Y    float64   `json:"y"`
	YInt *Interval `json:"interval,omitempty"`
}

// Line adds a point to a line. Of two points with the same x, the smaller y
// remains, or the larger one of percents.
func (p *Plot) Line(name string, x, y float64) {
	if x <= 0 || y <= 0 { // axes are logarithmic
		return
	}
	s := p.series(name)
	i := slices.IndexFunc(s.Points, func(old Point) bool { return old.X == x })
	switch {
	case i < 0:
		s.Points = append(s.Points, Point{X: x, Y: y})
	case (y < s.Points[i].Y) != (p.Y == Percent):
		s.Points[i].Y = y
	}
}

// Bar adds a bar to a group.
func (p *Plot) Bar(group, name string, f Figure) {
	i := slices.Index(p.Groups, group)
	if i < 0 {
		i = len(p.Groups)
		p.Groups = append(p.Groups, group)
	}
	s := p.series(name)
	s.Points = append(s.Points, Point{X: float64(i), Y: f.Value, YInt: f.Interval})
}

func (p *Plot) series(name string) *Series {
	return findOrAdd(&p.Series, &Series{Name: name}, func(s *Series) bool { return s.Name == name })
}

// ours is the series with the boldest line.
const ours = "nftproxy"

const width, height = 18 * vg.Centimeter, 10 * vg.Centimeter

// save writes NAME.svg into a folder. Nothing is written without series.
func (p *Plot) save(folder string) error {
	if len(p.Series) == 0 {
		return nil
	}
	out := plot.New()
	out.Title.Text, out.X.Label.Text, out.Y.Label.Text = p.Title, p.XLabel, p.YLabel
	out.Legend.Top, out.Legend.Left, out.Legend.Padding = true, true, vg.Points(2)
	draw := p.drawLines
	if len(p.Groups) > 0 {
		draw = p.drawBars
	}
	if err := draw(out); err != nil {
		return fmt.Errorf("plot %s: %w", p.Name, err)
	}
	return out.Save(width, height, filepath.Join(folder, p.Name+".svg"))
}

// palette returns a colour. People with all kinds of colour vision can
// distinguish them.
func palette(i int) color.Color {
	all := []uint32{0xd55e00, 0x0072b2, 0xe69f00, 0x56b4e9, 0xcc79a7, 0xf0e442, 0x009e73, 0x000000}
	rgb := all[i%len(all)]
	return color.RGBA{R: uint8(rgb >> 16), G: uint8(rgb >> 8), B: uint8(rgb), A: 0xff}
}

// drawLines draws all lines on logarithmic scales. A Y axis of percents is
// linear.
func (p *Plot) drawLines(out *plot.Plot) error {
	out.Add(plotter.NewGrid())
	for i, s := range p.Series {
		var points plotter.XYs
		for _, point := range s.Points {
			points = append(points, plotter.XY{X: point.X, Y: point.Y})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width, line.Dashes = palette(i), vg.Points(1.5), plotutil.Dashes(i)
		if s.Name == ours {
			line.Width, line.Dashes = vg.Points(4), nil
		}
		out.Add(line)
		out.Legend.Add(s.Name, line)
	}
	logarithmic(&out.X, p.X)
	if p.Y == Percent {
		out.Y.Min, out.Y.Max = 0, 100
	} else {
		logarithmic(&out.Y, p.Y)
	}
	return nil
}

// logarithmic sets up an axis of whole decades.
func logarithmic(a *plot.Axis, unit Unit) {
	a.Min, a.Max = math.Pow(10, math.Floor(math.Log10(a.Min))), math.Pow(10, math.Ceil(math.Log10(a.Max)))
	if a.Min == a.Max {
		a.Max *= 10
	}
	a.Scale = plot.LogScale{}
	a.Tick.Marker = labelled(plot.LogTicks{Prec: -1}, unit)
}

// labelled returns a ticker whose labels have a unit.
func labelled(ticker plot.Ticker, unit Unit) plot.Ticker {
	return plot.TickerFunc(func(least, most float64) []plot.Tick {
		ticks := ticker.Ticks(least, most)
		for i := range ticks {
			if !ticks[i].IsMinor() {
				ticks[i].Label = unit.format(ticks[i].Value)
			}
		}
		return ticks
	})
}

// drawBars draws a group of bars for each group, with error bars.
func (p *Plot) drawBars(out *plot.Plot) error {
	const (
		inner = 16 * vg.Centimeter // room for all groups
		group = 0.8                // part of the room of a group that its bars take
		line  = 1.08               // factor of the height for a line of the legend
	)
	n := float64(len(p.Series))
	for i, s := range p.Series {
		offset := group * ((float64(i)+0.5)/n - 0.5)
		values := make(plotter.Values, len(p.Groups))
		var intervals struct {
			plotter.XYs
			plotter.YErrors
		}
		for _, point := range s.Points {
			values[int(point.X)] = point.Y
			if r := point.YInt; r != nil {
				intervals.XYs = append(intervals.XYs, plotter.XY{X: point.X + offset, Y: point.Y})
				deviation := struct{ Low, High float64 }{point.Y - r.Low, r.High - point.Y}
				intervals.YErrors = append(intervals.YErrors, deviation)
			}
		}
		bars, err := plotter.NewBarChart(values, inner*vg.Length(group/n/float64(len(p.Groups))))
		if err != nil {
			return err
		}
		bars.XMin, bars.Color, bars.LineStyle.Width = offset, palette(i), 0
		out.Add(bars)
		out.Legend.Add(s.Name, bars)
		if len(intervals.XYs) > 0 {
			errors, err := plotter.NewYErrorBars(intervals)
			if err != nil {
				return err
			}
			out.Add(errors)
		}
	}
	out.X.Tick.Label.Font.Size = vg.Points(8) // so that names of two lines do not overlap
	var names []string
	for _, name := range p.Groups {
		names = append(names, strings.Replace(name, ", ", "\n", 1))
	}
	out.NominalX(names...)
	out.X.Min, out.X.Max = -0.5, float64(len(names))-0.4
	out.Y.Min, out.Y.Max = 0, out.Y.Max*math.Pow(line, n)
	out.Y.Tick.Marker = labelled(plot.DefaultTicks{}, p.Y)
	return nil
}
