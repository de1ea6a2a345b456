package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/test/bench/report"
)

// addRow adds a row to a table of the report.
type addRow func(table, what string, figures ...report.Figure)

func (r *run) fillConnections(row addRow, seconds float64) {
	c := r.connections
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(c.made)) {
		total += c.made[kind]
		row("Connections", kind, report.Value("number", report.Count, float64(c.made[kind])))
	}
	explained := 0
	for _, n := range r.explained {
		explained += n
	}
	row("Load", "connections", report.Value("number", report.Count, float64(total)),
		report.Value("per second", report.Count, float64(total)/seconds),
		report.Value("explained failures", report.Count, float64(explained)),
		report.Value("of one possible state", report.Count, float64(c.exact)),
		report.Value("not judged", report.Count, float64(c.unjudged)))
	for _, n := range r.world.nodes {
		n.mu.Lock()
		row("From the answer of the API to the effect on connections, with faults", n.Name,
			report.Value("p50", report.Seconds, n.latency.Median()),
			report.Value("p99", report.Seconds, n.latency.Quantile(0.99)),
			report.Value("max", report.Seconds, n.latency.Quantile(1)))
		n.mu.Unlock()
	}
}

func (r *run) fillFaults(row addRow) {
	for _, kind := range slices.Sorted(maps.Keys(r.faults.recoveries)) {
		sample := r.faults.recoveries[kind]
		row("Faults, and the time from their end until the proxy has recovered", kind,
			report.Value("number", report.Count, float64(len(*sample))),
			report.Value("p50", report.Seconds, sample.Median()), report.Value("max", report.Seconds, sample.Quantile(1)),
			report.Value("explained failures", report.Count, float64(r.explained[kind])))
	}
	for _, w := range r.world.windows {
		if w.to.IsZero() || w.excused == 0 {
			continue
		}
		at := "all"
		if !w.all {
			at = w.node.Name
		}
		row("Windows that explain failures", fmt.Sprintf("%s %s, %s", w.from.Format(time.TimeOnly), w.kind, at),
			report.Value("length", report.Seconds, w.to.Sub(w.from).Seconds()),
			report.Value("failures", report.Count, float64(w.excused)))
	}
}

const memoryTable = "Proxy of node2 with the steady Services"

// fillSamples adds the samples, and a problem for each quantity that grew.
func (r *run) fillSamples(row addRow) {
	figures := func(of func(quantity) float64) (all []report.Figure) {
		for _, q := range quantities() {
			all = append(all, report.Value(q.name, q.unit, of(q)))
		}
		return all
	}
	for _, s := range r.samples {
		row(memoryTable, s.at.Round(time.Second).String(), figures(func(q quantity) float64 { return q.of(s) })...)
	}
	const least = 4 // samples
	if len(r.samples) < least {
		return
	}
	for i, half := range []string{"first half", "second half"} {
		row(memoryTable, half, figures(func(q quantity) float64 {
			before, after, _ := q.growth(r.samples)
			return []float64{before, after}[i]
		})...)
	}
	for _, q := range quantities() {
		before, after, grew := q.growth(r.samples)
		if !grew {
			continue
		}
		text := fmt.Sprintf("%s of the proxy of node2 grew from %s to %s", q.name,
			report.Value("", q.unit, before), report.Value("", q.unit, after))
		if q.name == "goroutines" {
			text += "; the most frequent stack:\n" + strings.TrimSpace(firstStack(r.samples[len(r.samples)-1].stacks))
		}
		r.world.problem("%s", text)
	}
}
