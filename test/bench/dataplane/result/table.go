package result

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table writes all figures as tables, one a case, for people.
func (r *Result) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s\n%s\n\n", r.Command, r.Machine, r.about())
	for _, c := range Cases() {
		if err := r.section(w, c); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, explanation)
	return err
}

const explanation = `to static: p50 of a round divided by that of the static rule in the same round, median and 95 % interval
to plain: the same, compared with these rules without session affinity
rounds, instances: the range of the middle four fifths of their p50s
conn/s: whole cycles on all processors, median
requests/s: requests and answers over one established flow, one thread; each is two packets; median
`

// about tells when what was measured.
func (r *Result) about() string {
	var all []string
	for proxy, version := range r.Versions {
		all = append(all, proxy+": "+version)
	}
	slices.Sort(all)
	return strings.Join(append(all, fmt.Sprintf("load average %.1f", r.Load), r.Date.Format("2006-01-02 15:04 UTC")), ", ")
}

// title returns the case and the number of endpoints of its Service.
func (r *Result) title(c Case) string {
	endpoints := r.Endpoints
	if c.Affinity() {
		endpoints = r.Affinity
	}
	return fmt.Sprintf("%s, %d endpoints", c, endpoints)
}

// rateUnit returns the heading of the column with the rates of a case.
func rateUnit(c Case) string {
	if c.Established() {
		return "requests/s"
	}
	return "conn/s"
}

// section writes the table of a case. It writes nothing if there are no figures.
func (r *Result) section(w io.Writer, c Case) error {
	const padding = 2
	t := tabwriter.NewWriter(w, 0, 0, padding, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "rules\tp50\tp90\trounds\tinstances\tto static\tto plain\t%s\tto static\tn\t\n", rateUnit(c))
	any := false
	for _, f := range r.Figures {
		if f.Case != c {
			continue
		}
		any = true
		perSecond := ""
		if f.PerSecond != nil {
			perSecond = fmt.Sprintf("%.0f", f.PerSecond.Median)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n",
			f.Variant, micro(f.P50), micro(f.P90), f.OfRounds, f.OfInstances,
			f.ToStatic, f.ToPlain, perSecond, f.PerSecondToStatic, f.N)
	}
	if !any {
		return nil
	}
	fmt.Fprintln(w, r.title(c))
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// String shows times.
func (s Spread) String() string { return fmt.Sprintf("%.2f-%.2f", s.Low*1e6, s.High*1e6) }

// String shows by how much more or less than one it is; nothing for nil.
func (r *Ratio) String() string {
	if r == nil {
		return ""
	}
	percent := func(v float64) float64 { return (v - 1) * 100 }
	return fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", percent(r.Median), percent(r.Low), percent(r.High))
}

func micro(s float64) string { return fmt.Sprintf("%.2f µs", s*1e6) }
