package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

const (
	benchmarkFlows = 500_000
	memoryLimit    = 64 << 20
)

// BenchmarkClean500k makes passes over a table of 500,000 UDP flows. It
// fails if the process, including the benchmark, uses more than 64 MiB at
// any time. It reports the peak of the resident memory (VmHWM), the flows in
// the table (fewer if net.netfilter.nf_conntrack_max of the initial
// namespace is lower), and the flows that a pass read.
func BenchmarkClean500k(b *testing.B) {
	nstest.Enter(b)
	c := open(b)
	n := min(benchmarkFlows, flowLimit(b))
	refill := func() {
		if err := fill(c, n, toOneVIP()); err != nil {
			b.Fatalf("fill the table: %v", err)
		}
	}
	refill()
	endpoints := []netip.AddrPort{addrPort("10.244.0.5:53")}
	other := FrontendChange{Frontend: addrPort("10.96.0.11:53"), Endpoints: endpoints}
	all := FrontendChange{Frontend: addrPort("10.96.0.10:53"), Endpoints: endpoints}

	b.Run("another frontend", func(b *testing.B) { benchmarkClean(b, c, other) })
	b.Run("all serving", func(b *testing.B) { benchmarkClean(b, c, all) })
	b.Run("many frontends", func(b *testing.B) {
		benchmarkClean(b, c, append(changes(1000, numberedPort), all)...)
	})
	b.Run("all stale", func(b *testing.B) {
		stale := all
		stale.Endpoints = nil
		nstest.ResetPeakMemory(b)
		for b.Loop() {
			stats, err := cleanChanges(b, c, stale)
			if err != nil || stats.Deleted != n {
				b.Fatalf("got %+v, %v, want %d deleted flows", stats, err, n)
			}
			b.StopTimer()
			reportMemory(b)
			refill()
			b.StartTimer()
		}
		b.ReportMetric(float64(n), "flows")
	})
}

// cleanChanges makes one pass for changes.
func cleanChanges(b *testing.B, c *Conn, changes ...FrontendChange) (Stats, error) {
	f := newFrontends()
	f.Update(changes...)
	todo := f.take()
	return c.clean(b.Context(), f, &todo)
}

func benchmarkClean(b *testing.B, c *Conn, changes ...FrontendChange) {
	b.ReportAllocs()
	nstest.ResetPeakMemory(b)
	var stats Stats
	for b.Loop() {
		var err error
		if stats, err = cleanChanges(b, c, changes...); err != nil || stats.Deleted != 0 {
			b.Fatalf("got %+v, %v, want no deleted flows", stats, err)
		}
	}
	entries, err := c.Entries()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(entries), "flows")
	b.ReportMetric(float64(stats.Flows), "read/op")
	reportMemory(b)
}

// BenchmarkSelect200k selects connections in a table of 200,000 UDP flows: all,
// and those to a frontend without any.
func BenchmarkSelect200k(b *testing.B) {
	nstest.Enter(b)
	c := open(b)
	n := min(200_000, flowLimit(b))
	if err := fill(c, n, toOneVIP()); err != nil {
		b.Fatal(err)
	}
	for name, addr := range map[string]netip.Addr{"all": addr("10.96.0.10"), "none": addr("10.96.0.11")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			nstest.ResetPeakMemory(b)
			selected := 0
			for b.Loop() {
				selected = 0
				s := Selection{Family: IPv4, Protocol: udp, Addr: addr, Port: 53}
				if _, err := c.Select(b.Context(), s, func(Connection) { selected++ }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(selected), "selected/op")
			reportMemory(b)
		})
	}
}

// BenchmarkWalk measures walks for unanswered attempts through a table of
// answered connections, none of which is selected: with the filter of the
// kernel, and without, as on Linux 5.10. It reports the CPU time of a walk and
// of an entry.
func BenchmarkWalk(b *testing.B) {
	for _, n := range []int{0, 12_000, 100_000} {
		for _, filter := range []bool{true, false} {
			b.Run(fmt.Sprintf("%d entries, filter %v", n, filter), func(b *testing.B) {
				nstest.Enter(b)
				c := open(b)
				if err := fillTCP(c, min(n, flowLimit(b)), 1); err != nil {
					b.Fatal(err)
				}
				s := Selection{Translated: true, Answer: Unanswered}
				if !filter {
					s = Selection{}
				}
				before := cpuTime(b)
				for b.Loop() {
					found := 0
					_, err := c.Select(b.Context(), s, func(c Connection) {
						if c.State == "SYN_SENT" {
							found++
						}
					})
					if err != nil || found > 0 {
						b.Fatalf("got %d, %v, want no attempts", found, err)
					}
				}
				cost := (cpuTime(b) - before) / time.Duration(b.N)
				b.ReportMetric(float64(cost.Microseconds()), "cpu-us/op")
				b.ReportMetric(float64(cost.Nanoseconds())/float64(max(n, 1)), "cpu-ns/entry")
			})
		}
	}
}

// fill adds n flows, each from a client of its own. It does not keep all of
// them in memory.
func fill(c *Conn, n int, flow func(i int) trackedFlow) error {
	batch := make([]trackedFlow, 0, 128)
	for i := range n {
		batch = append(batch, flow(i).fromClient(netip.AddrPortFrom(numbered(11, i), 4000)))
		if len(batch) == cap(batch) || i == n-1 {
			if err := addBatch(c, batch); err != nil {
				return fmt.Errorf("after %d flows: %w", i, err)
			}
			batch = batch[:0]
		}
	}
	return nil
}

// toOneVIP returns the flow of manyFlows.
func toOneVIP() func(int) trackedFlow {
	flow := manyFlows(1)[0]
	return func(int) trackedFlow { return flow }
}

// flowLimit returns the maximum number of flows in a namespace, which is the
// limit of the host (nf_conntrack_max).
func flowLimit(b *testing.B) int {
	limit, err := readInt("/" + sysctlDir + "/nf_conntrack_max")
	if err != nil {
		b.Fatal(err)
	}
	return limit - 1000
}

// reportMemory reports the peak of the resident memory, which is limited.
func reportMemory(b *testing.B) {
	peak := nstest.PeakMemory(b)
	b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
	if peak > memoryLimit {
		b.Fatalf("got a peak of %d KiB, want at most %d", peak>>10, memoryLimit>>10)
	}
}

// BenchmarkManyChanges200k measures the CPU time of a Cleaner for 5 s, with
// 200,000 UDP flows in the table, while frontends change at a constant rate.
// It reports the share of one CPU and the passes per second.
func BenchmarkManyChanges200k(b *testing.B) {
	for _, rate := range []int{10, 100} { // changes per second
		for _, n := range []int{1, 50} {
			b.Run(fmt.Sprintf("%d per second, %d frontends", rate, n), func(b *testing.B) {
				nstest.Enter(b)
				flows := min(200_000, flowLimit(b))
				conn := open(b)
				if err := fill(conn, flows, toOneVIP()); err != nil {
					b.Fatal(err)
				}
				passes := 0
				c := conn.NewCleaner(CleanerConfig{Report: func(r Result) { passes++ }})
				for b.Loop() {
					manyChanges(b, c, time.Second/time.Duration(rate), n)
				}
				b.ReportMetric(float64(passes)/float64(b.N)/5, "passes/s")
				b.ReportMetric(float64(flows), "flows")
			})
		}
	}
}

// manyChanges runs a Cleaner for 5 s while one of n frontends changes per
// interval.
func manyChanges(b *testing.B, c *Cleaner, interval time.Duration, n int) {
	load(b, c, 5*time.Second, interval, func(i int) {
		endpoint := netip.AddrPortFrom(addr("10.244.0.5"), uint16(i))
		frontend := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 97, 0, byte(i % n)}), uint16(1000+i%n))
		c.Update(FrontendChange{Frontend: frontend, Endpoints: []netip.AddrPort{endpoint}})
	})
}

// load runs a Cleaner for a time, with a change in each interval, and reports
// the share of one CPU.
func load(b *testing.B, c *Cleaner, duration, interval time.Duration, change func(i int)) {
	ctx, cancel := context.WithTimeout(b.Context(), duration)
	defer cancel()
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	before := cpuTime(b)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		change(i)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(100*(cpuTime(b)-before).Seconds()/duration.Seconds(), "cpu-%")
}

// BenchmarkRemovals1M measures the CPU time of a Cleaner for 30 s, with a
// million TCP connections in the table, while 10 endpoints are removed per
// second, or one in two seconds. The endpoints have a port of their own, the
// port of one percent of the connections, or the port of all of them. It
// reports the share of one CPU, and the longest delay from a removal to the end
// of its first pass.
func BenchmarkRemovals1M(b *testing.B) {
	const often, seldom = time.Second / 10, 2 * time.Second
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
			flows := min(1_000_000, flowLimit(b))
			conn := open(b)
			if err := fillTCP(conn, flows, tc.ports); err != nil {
				b.Fatal(err)
			}
			r := &removalBenchmark{port: tc.port, interval: tc.interval}
			r.cleaner = conn.NewCleaner(CleanerConfig{Slow: true, Report: r.passed})
			for b.Loop() {
				r.run(b)
			}
			b.ReportMetric(float64(flows), "flows")
		})
	}
}

// fillTCP adds n connections to 1000 endpoints, with ports from 8080 on.
func fillTCP(c *Conn, n, ports int) error {
	const endpoints = 1000
	flow := newFlow(tcp, "10.0.0.0:0", "10.96.0.10:80", "10.244.0.5:8080")
	flow.status = statusSeenReply
	return fill(c, n, func(i int) trackedFlow {
		flow.reply.src = netip.AddrPortFrom(numbered(10, 1<<16+i%endpoints), uint16(8080+i/endpoints%ports))
		return flow
	})
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
	r.passes, r.busy, r.delay, r.removed = 0, 0, 0, make(chan time.Time, 1000)
	load(b, r.cleaner, 30*time.Second, r.interval, func(i int) {
		r.removed <- time.Now()
		r.cleaner.Remove(Removal{
			Protocol: tcp, Endpoint: netip.AddrPortFrom(numbered(10, 2<<16+i), r.port), Done: func(int) {},
			Serves: func(frontend netip.AddrPort) bool { return frontend == addrPort("10.96.0.10:80") },
		})
	})
	b.ReportMetric(float64(r.passes), "passes")
	b.ReportMetric(float64(r.busy.Milliseconds())/float64(max(r.passes, 1)), "ms/pass")
	b.ReportMetric(r.delay.Seconds(), "s-delay")
}

// cpuTime returns the CPU time of the process, in user space and in the
// kernel.
func cpuTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
