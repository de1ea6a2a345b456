package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
)

// run measures one proxy at one size.
type run struct {
	*world
	*report.Report
	proxy string
	size  size

	subject                *subject
	cold, restart, bursted series
	memory                 []report.Figure
	slab                   float64
}

// measure adds rows to all tables and points to all plots.
func (r *run) measure(ctx context.Context) (err error) {
	defer func() {
		if r.subject != nil {
			err = errors.Join(err, r.subject.remove())
		}
	}()
	if err := r.coldStarts(ctx); err != nil {
		return err
	}
	if err := r.restarts(ctx); err != nil {
		return err
	}
	r.addStarts()
	for _, phase := range []func(context.Context) error{r.changes, r.bursts, r.churn} {
		if err := r.subject.settle(); err != nil {
			return err
		}
		if err := phase(ctx); err != nil {
			return err
		}
	}
	r.addTraffic()
	slab := report.Value("slab", report.Bytes, r.slab)
	r.add("Memory", append(r.memory, slab)...)
	return r.subject.stop()
}

// start starts the proxy and waits until it has programmed these frontends.
func (r *run) start(ctx context.Context, to *series, present, absent []netip.AddrPort) error {
	calm, err := stage.AwaitCalm(ctx, r.scale.calm)
	if err != nil {
		return err
	}
	if !calm {
		r.Say("%s starts although the machine has other work", r.proxy)
	}
	if err := r.subject.start(ctx); err != nil {
		return err
	}
	process := r.subject.Process
	programmed, err := r.subject.AwaitProgrammed(append(stage.Frontends(r.services), present...), absent)
	if err != nil {
		return err
	}
	to.latency.Add(programmed.Sub(process.Began))
	if err := process.Pause(r.scale.rest); err != nil {
		return err
	}
	return r.subject.account(to, 0)
}

// coldStarts starts the proxy in empty namespaces. The last one stays, with its
// table.
func (r *run) coldStarts(ctx context.Context) error {
	return r.scale.repeat(r.scale.starts, 1, func(int) (err error) {
		if r.subject != nil {
			if err := r.subject.remove(); err != nil {
				return err
			}
		}
		if r.subject, err = r.newSubject(ctx, r.proxy); err != nil {
			return err
		}
		before, err := slab()
		if err != nil {
			return err
		}
		if err := r.start(ctx, &r.cold, nil, nil); err != nil {
			return err
		}
		if r.memory, err = r.subject.memory("started"); err != nil {
			return err
		}
		if err := r.subject.stop(); err != nil {
			return err
		}
		after, err := slab()
		// The largest growth: tables reuse slabs that earlier ones left.
		r.slab = max(r.slab, float64(after-before))
		return err
	})
}

// restarts starts the proxy on its own table, which is outdated by the
// witnesses. The proxy runs afterwards.
func (r *run) restarts(ctx context.Context) error {
	return r.scale.repeat(r.scale.starts, 1, func(int) error {
		if err := r.subject.stop(); err != nil {
			return err
		}
		present, absent, err := r.replaceWitnesses(ctx)
		if err != nil {
			return err
		}
		return r.start(ctx, &r.restart, present, absent)
	})
}

// add adds a row to a table.
func (r *run) add(title string, figures ...report.Figure) {
	row := append([]report.Figure{report.Label("services", r.size.String()), report.Label("proxy", r.proxy)}, figures...)
	r.Table(title).Add(row...)
	var texts []string
	for _, f := range figures {
		texts = append(texts, f.Name+" "+f.String())
	}
	r.Say("%s, %s: %s: %s", r.proxy, r.size, title, strings.Join(texts, ", "))
}

// line adds a point to the line of the proxy, unless the number of endpoints
// differs from that of the other sizes.
func (r *run) line(name, title string, unit report.Unit, what string, y float64) *report.Plot {
	p := r.Plot(report.Plot{Name: name, Title: title, XLabel: "Services", X: report.Count, Y: unit})
	if r.endpoints == r.scale.sizes[0].endpoints {
		p.Line(r.proxy+what, float64(r.services), y)
	}
	return p
}

// floor adds a point of the bare watch.
func (r *run) floor(p *report.Plot, s *series) {
	if r.endpoints == r.scale.sizes[0].endpoints {
		p.LeastLine("watch alone", float64(r.services), s.floor.Median())
	}
}

func seconds(name string, value float64) report.Figure {
	return report.Value(name, report.Seconds, value)
}

func count(name string, value float64) report.Figure {
	return report.Value(name, report.Count, value)
}

func (r *run) addStarts() {
	r.add("Starts",
		seconds("cold start", r.cold.latency.Median()), seconds("cold start CPU", r.cold.cpu.Mean()),
		seconds("cold start longest transaction", slices.Max(r.cold.longest)),
		seconds("restart", r.restart.latency.Median()), seconds("restart CPU", r.restart.cpu.Mean()),
		seconds("restart longest transaction", slices.Max(r.restart.longest)),
		count("n", float64(len(r.cold.latency))))
	const title = "Start until all rows are there, p50"
	r.line("start", title, report.Seconds, ", cold start", r.cold.latency.Median())
	r.line("start", title, report.Seconds, ", restart", r.restart.latency.Median())
}

func (r *run) addTraffic() {
	var row []report.Figure
	for _, phase := range []struct {
		name string
		s    *series
	}{{"cold start", &r.cold}, {"restart", &r.restart}, {"burst", &r.bursted}} {
		sends := count(phase.name+" sends", phase.s.sends.Mean())
		sends.LowerBound = phase.s.lost
		row = append(row, sends,
			report.Value(phase.name+" sent", report.Bytes, phase.s.sent.Mean()),
			report.Value(phase.name+" received", report.Bytes, phase.s.received.Mean()))
	}
	r.add("Sent to the kernel", row...)
}
