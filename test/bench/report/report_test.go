package report

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// fake is a benchmark that measures nothing.
type fake struct{ sizes []int }

func (f *fake) AddFlags(flags *pflag.FlagSet) {
	flags.IntSliceVar(&f.sizes, "sizes", []int{10, 100}, "Sizes.")
}
func (f *fake) Check() error { return nil }

func (f *fake) Measure(_ context.Context, r *Report) error {
	for _, n := range f.sizes {
		size := float64(n)
		row := []Figure{Label("proxy", "a"), Value("time", Seconds, size/1e3).In(Interval{0.001, 2})}
		if n > 10 {
			row = append(row, Value("memory", Bytes, 1e4*size))
		}
		r.Table("Starts").Add(row...)
		lines := r.Plot(Plot{Name: "lines", Title: "Starts", X: Count, Y: Seconds})
		lines.Line("a, one", size, size/1e3)
		lines.Line("a, two", size, 0)
		lines.Line("least", size, 3)
		lines.Line("least", size, 2)
		bars := r.Plot(Plot{Name: "bars", Y: Seconds})
		bars.Bar("a", "TCP", row[1])
		bars.Bar("b", "UDP", row[1])
	}
	r.Notes = []string{"a note"}
	return nil
}

func TestRun(t *testing.T) {
	folder := t.TempDir()
	var out strings.Builder
	r, err := Run(t.Context(), "fake", "About.", new(fake), []string{"--publish=" + folder}, &out)
	if err != nil {
		t.Fatal(err)
	}
	const table = `
Starts
  proxy                  time  memory
      a   10 ms (1 ms to 2 s)        
      a  100 ms (1 ms to 2 s)    1 MB

a note
`
	if !strings.HasSuffix(out.String(), table) {
		t.Errorf("got %s, want the table %s", &out, table)
	}
	text, err := os.ReadFile(filepath.Join(folder, "fake.txt"))
	if err != nil || string(text) != out.String() {
		t.Errorf("got %q in fake.txt, want the text of standard output: %v", text, err)
	}
	var read Report
	if text, err = os.ReadFile(filepath.Join(folder, "fake.json")); err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil || read.String() != r.String() {
		t.Errorf("got %v from fake.json, want %v: %v", &read, r, err)
	}
	if points := read.Plots[0].Series[1].Points; len(points) != 2 || points[0].Y != 2 {
		t.Errorf("got %+v, want the least of two points at each size", points)
	}
	for _, name := range []string{"lines.svg", "bars.svg"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for _, flag := range []string{"argument", "--unknown", "--sizes=x", "--help"} {
		if _, err := Run(t.Context(), "fake", "", new(fake), []string{flag}, new(strings.Builder)); err == nil {
			t.Errorf("%s: got no error", flag)
		}
	}
}

func TestFigureString(t *testing.T) {
	for want, f := range map[string]Figure{
		"a": Label("proxy", "a"), "0": Value("", Seconds, 0), "5 µs": Value("", Seconds, 5e-6),
		"1.235 ms": Value("", Seconds, 0.0012346), "-1.5 ms": Value("", Seconds, -0.0015),
		"12.35 s": Value("", Seconds, 12.346),
		"999 B":   Value("", Bytes, 999), "1.5 kB": Value("", Bytes, 1500), "-2 MB": Value("", Bytes, -2e6),
		"45000": Value("", Count, 45000), "5.8 %": Value("", Percent, 5.82),
		"+11.5 % (-2.0 to +12.5)":  Value("", Change, 1.115).In(Interval{0.98, 1.125}),
		"15.11 µs (14.7 to 21.41)": Value("", Seconds, 15.11e-6).In(Interval{14.7e-6, 21.41e-6}),
		"> 30":                     {Value: 30, LowerBound: true},
	} {
		if got := f.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
