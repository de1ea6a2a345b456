package main

import (
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/bench/report"
)

// The rules without a proxy.
const (
	noRules    = "no rules"
	staticRule = "static rule"
)

// variant is the rules that packets pass.
type variant struct {
	rules    string
	services int // of a proxy
}

// String names the variant.
func (v variant) String() string {
	if v.services == 0 {
		return v.rules
	}
	return fmt.Sprintf("%s, %d Services", v.rules, v.services)
}

// The paths of connections: the client is the node, or behind it.
const (
	fromNode = "node"
	fromPod  = "pod"
)

// scenario is what is measured in each variant.
type scenario struct {
	path string
	traffic
}

// String names the scenario.
func (c scenario) String() string { return c.name + " from " + c.path }

// scenarios returns all scenarios with such traffic in the order of the tables.
func scenarios(wanted *regexp.Regexp) (all []scenario) {
	for _, path := range []string{fromNode, fromPod} {
		for _, t := range traffics() {
			if wanted.MatchString(t.name) || t == newTCP {
				all = append(all, scenario{path, t})
			}
		}
	}
	return all
}

// measurement is one measurement of a scenario of a subject.
type measurement struct {
	instance  int
	latencies report.Sample
	rate      float64 // 0 if it was not measured
	late      int     // connections
}

// key identifies a row of a table.
type key struct {
	variant
	scenario
}

// series collects the measurements of a row.
type series struct {
	rounds, rates report.Sample         // median latency and mean rate of each round
	latencies     map[int]report.Sample // by instance
	all           report.Sample         // rates
	late          int
}

// add adds the measurements of all instances in a round.
func (d *dataplane) add(v variant, c scenario, round []measurement) {
	s := d.results[key{v, c}]
	if s == nil {
		s = &series{latencies: map[int]report.Sample{}}
		d.results[key{v, c}] = s
	}
	var latencies, rates report.Sample
	for _, m := range round {
		latencies = append(latencies, m.latencies...)
		s.late += m.late
		s.latencies[m.instance] = append(s.latencies[m.instance], m.latencies...)
		if m.rate > 0 {
			rates = append(rates, m.rate)
		}
	}
	s.rounds = append(s.rounds, latencies.Median())
	if len(rates) > 0 {
		s.all, s.rates = append(s.all, rates...), append(s.rates, rates.Mean())
	}
}

// fill adds all figures to a report.
func (d *dataplane) fill(r *report.Report) {
	for _, c := range scenarios(d.wanted) {
		rate := "conn/s"
		if c.established {
			rate = "requests/s"
		}
		table := r.Table(fmt.Sprintf("%s, %d endpoints", c, c.endpoints()))
		for _, one := range d.subjects {
			v := one.variant
			s := d.results[key{v, c}]
			if s == nil || one.instance > 0 { // a row is all instances
				continue
			}
			var all, medians report.Sample
			for _, latencies := range s.latencies {
				all, medians = append(all, latencies...), append(medians, latencies.Median())
			}
			p50 := report.Value("p50", report.Seconds, all.Median()).In(s.rounds.Spread())
			perSecond := report.Number(rate, s.all.Median()).In(s.all.Spread())
			row := []report.Figure{
				report.Label("rules", v.String()), p50, report.Time("p90", all, 0.9),
				report.Value("instances", report.Seconds, medians.Median()).In(medians.Spread()),
			}
			plain := c
			if c.special() {
				plain.traffic = newTCP
			}
			static := d.results[key{variant{rules: staticRule}, plain}]
			row = append(row, compared("to static", s.rounds.Over(static.rounds))...)
			if c.special() {
				row = append(row, compared("to plain", s.rounds.Over(d.results[key{v, plain}].rounds))...)
			}
			if len(s.all) > 0 {
				row = append(row, perSecond)
				row = append(row, compared(rate+" to static", s.rates.Over(static.rates))...)
			}
			row = append(row, report.Number("n", len(all)))
			if c.kind == unix.SOCK_STREAM && !c.established {
				row = append(row, report.Number("late", s.late))
			}
			table.Add(row...)
			d.draw(r, v, c, p50, perSecond)
		}
	}
	r.Notes = strings.Split(notes, "\n")
}

// compared returns the median of ratios with its confidence interval.
func compared(name string, ratios report.Sample) []report.Figure {
	if len(ratios) == 0 {
		return nil
	}
	return []report.Figure{report.Value(name, report.Change, ratios.Median()).In(ratios.MedianInterval())}
}

// draw adds the bars of a row to the plots.
func (d *dataplane) draw(r *report.Report, v variant, c scenario, p50, rate report.Figure) {
	bar := func(name, title string, f report.Figure) {
		r.Plot(report.Plot{Name: name, Title: title, Y: f.Unit}).Bar(v.String(), c.String(), f)
	}
	switch {
	case c.established:
		bar("established", "A request over an established flow: p50, and the spread of the rounds", p50)
		bar("requests", "Requests per second over an established flow, one thread", rate)
	case !c.special():
		bar("latency", "A new connection: p50, and the spread of the rounds", p50)
		bar("rate", "New connections per second, on all processors", rate)
	}
	plain := c.traffic == newTCP && v.services > 0
	if c.to == affinity || plain {
		title := fmt.Sprintf("connect() with session affinity, %d endpoints: p50", affinityEndpoints)
		bar("affinity", title, p50)
	}
	if prefixLengths[c.to] > 0 || plain {
		bar("guarded", "connect() with loadBalancerSourceRanges: p50", p50)
	}
}

const notes = `p50: of all latencies, and the range of the middle four fifths of the rounds' p50s
instances: the p50s of instances, median and range of the middle four fifths
to static: p50 of a round divided by p50 of the static rule in the same round, median and 95 % interval
to plain: the same, compared with a plain Service of the same rules
conn/s: whole cycles on all processors, median and range of the middle four fifths
late: TCP connections that took longer than 0.5 s, among those of conn/s, too
requests/s: requests and answers over one established flow, one thread; each is two packets`
