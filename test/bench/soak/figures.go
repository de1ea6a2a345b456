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
		row("Connections", kind, count("number", c.made[kind]))
	}
	explained := 0
	for _, n := range r.explained {
		explained += n
	}
	row("Load", "connections", count("number", total), report.Value("per second", report.Count, float64(total)/seconds),
		count("explained failures", explained), count("of one possible state", int(c.exact.Load())),
		count("not judged", int(c.unjudged.Load())))
	for _, n := range r.world.nodes {
		n.mu.Lock()
		row("From the answer of the API to the effect on connections, with faults", n.Name,
			quantile("p50", n.latency, 0.5), quantile("p99", n.latency, 0.99), quantile("max", n.latency, 1))
		n.mu.Unlock()
	}
}

func count(name string, n int) report.Figure { return report.Value(name, report.Count, float64(n)) }

func quantile(name string, s report.Sample, part float64) report.Figure {
	return report.Value(name, report.Seconds, s.Quantile(part))
}

func (r *run) fillFaults(row addRow) {
	for _, kind := range slices.Sorted(maps.Keys(r.faults.recoveries)) {
		sample := r.faults.recoveries[kind]
		row("Faults, and the time from their end until the proxy has recovered", kind,
			count("number", len(sample)), quantile("p50", sample, 0.5), quantile("max", sample, 1),
			count("explained failures", r.explained[kind]))
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
			count("failures", w.excused))
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
			stacks := strings.SplitN(r.samples[len(r.samples)-1].stacks, "\n\n", 2)
			text += "; the most frequent stack:\n" + strings.TrimSpace(stacks[0])
		}
		r.world.problem("%s", text)
	}
}
