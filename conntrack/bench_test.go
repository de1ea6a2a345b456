package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

// BenchmarkRemovals1M measures the CPU time of a Cleaner for 30 s, with a
// million TCP connections in the table, while 10 endpoints are removed per
// second, or one in two seconds. The endpoints have a port of their own, the
// port of one percent of the connections, or the port of all of them. It
// reports the share of one CPU, and the longest delay from a removal to the end
// of its first pass. The limit of the host (nf_conntrack_max) limits the
// connections.
func BenchmarkRemovals1M(b *testing.B) {
	const often, seldom = time.Second / 10, 2 * time.Second
	limit, err := readInt("/" + sysctlDir + "/nf_conntrack_max")
	must.NoError(b, err)
	for name, tc := range map[string]struct {
		ports    int // of the connections
		port     uint16
		interval time.Duration
	}{
		"own port":               {1, 7777, often},
		"own port, seldom":       {1, 7777, seldom},
		"1 % of the connections": {100, 8080, often},
		"all connections":        {1, 8080, often},
	} {
		b.Run(name, func(b *testing.B) {
			nstest.Enter(b)
			flows := min(1_000_000, limit-1000)
			conn := open(b)
			fillTCP(b, conn, flows, tc.ports)
			r := &removalBenchmark{port: tc.port, interval: tc.interval}
			r.cleaner = conn.NewCleaner(CleanerConfig{Slow: true, Report: r.passed})
			for b.Loop() {
				r.run(b)
			}
			b.ReportMetric(float64(flows), "flows")
		})
	}
}

// BenchmarkWalk measures walks through a table of answered connections to 1000
// endpoints: for unanswered attempts with the filter of the kernel, without it
// as on Linux 5.10, and those of a Counter. It reports the CPU time of a walk.
func BenchmarkWalk(b *testing.B) {
	for _, n := range []int{0, 12_000, 100_000} {
		nstest.Enter(b)
		conn := open(b)
		fillTCP(b, conn, n, 1)
		nothing := func(Connection) {}
		counter := Counter{conn: conn, max: maxPairs}
		for name, walk := range map[string]func() error{
			"attempts": func() error {
				err := conn.Select(b.Context(), Selection{Translated: true, Answer: Unanswered}, nothing)
				return err
			},
			"attempts without filter": func() error {
				err := conn.Select(b.Context(), Selection{}, nothing)
				return err
			},
			"counter": func() error {
				_, err := counter.Count(b.Context())
				return err
			},
		} {
			b.Run(fmt.Sprintf("%d entries, %s", n, name), func(b *testing.B) {
				before := nstest.CPUTime(b)
				for b.Loop() {
					must.NoError(b, walk())
				}
				b.ReportMetric(float64((nstest.CPUTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
			})
		}
	}
}

// BenchmarkAttempts measures a pass for attempts to connect to the frontends of
// one changed service port of TCP, and of 50, in a table of answered
// connections.
func BenchmarkAttempts(b *testing.B) {
	for _, n := range []int{0, 100_000, 200_000} {
		nstest.Enter(b)
		conn := open(b)
		fillTCP(b, conn, n, 1)
		if n == 0 { // an empty table needs no dump
			add(b, conn, newFlow(tcp, "10.0.0.1:1", "10.96.0.99:80", "10.244.9.9:80"))
		}
		for _, changed := range []int{1, 50} {
			var todo check
			for i := range changed {
				todo.add(key{tcp, netip.AddrPortFrom(numbered(10, 97<<16+i), uint16(80+i))})
			}
			b.Run(fmt.Sprintf("%d entries, %d changed", n, changed), func(b *testing.B) {
				f := newFrontends()
				before := nstest.CPUTime(b)
				for b.Loop() {
					_, err := conn.clean(b.Context(), f, &todo)
					must.NoError(b, err)
				}
				b.ReportMetric(float64((nstest.CPUTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
			})
		}
	}
}

// fillTCP adds n connections of different clients to 1000 endpoints, with ports
// from 8080 on.
func fillTCP(b *testing.B, c *Conn, n, ports int) {
	b.Helper()
	const endpoints = 1000
	flow := newFlow(tcp, "10.0.0.0:0", "10.96.0.10:80", "10.244.0.5:8080")
	flow.status = statusSeenReply
	batch := make([]trackedFlow, 0, 128)
	for i := range n {
		flow.reply.src = netip.AddrPortFrom(numbered(10, 1<<16+i%endpoints), uint16(8080+i/endpoints%ports))
		batch = append(batch, flow.fromClient(netip.AddrPortFrom(numbered(11, i), 4000)))
		if len(batch) == cap(batch) || i == n-1 {
			add(b, c, batch...)
			batch = batch[:0]
		}
	}
}

// removalBenchmark removes endpoints that have no connections.
type removalBenchmark struct {
	cleaner  *Cleaner
	port     uint16
	interval time.Duration // between removals
	passes   int
	busy     time.Duration
	removed  chan time.Time // of removals without a pass
	delay    time.Duration  // the longest
}

func (r *removalBenchmark) passed(result Result) {
	r.passes++
	r.busy += result.Duration
	for range result.Changes {
		r.delay = max(r.delay, time.Since(<-r.removed))
	}
}

func (r *removalBenchmark) run(b *testing.B) {
	const duration = 30 * time.Second
	r.passes, r.busy, r.delay, r.removed = 0, 0, 0, make(chan time.Time, 1000)
	ctx, cancel := context.WithTimeout(b.Context(), duration)
	defer cancel()
	done := make(chan error)
	go func() { done <- r.cleaner.Run(ctx) }()
	before := nstest.CPUTime(b)
	tick := time.NewTicker(r.interval)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		r.removed <- time.Now()
		r.cleaner.Remove(Removal{
			Protocol: tcp, Endpoint: netip.AddrPortFrom(numbered(10, 2<<16+i), r.port), Done: func(int) {},
			Serves: func(frontend netip.AddrPort) bool { return frontend == addrPort("10.96.0.10:80") },
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	must.NoError(b, <-done)
	b.ReportMetric(100*(nstest.CPUTime(b)-before).Seconds()/duration.Seconds(), "cpu-%")
	b.ReportMetric(float64(r.passes), "passes")
	b.ReportMetric(float64(r.busy.Milliseconds())/float64(max(r.passes, 1)), "ms/pass")
	b.ReportMetric(r.delay.Seconds(), "s-delay")
}
