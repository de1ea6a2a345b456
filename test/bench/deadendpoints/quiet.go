package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/prometheus/procfs"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// Times of quiet.
const (
	faultAt         = time.Second // after the beginning of the connects
	faultLasts      = 12 * time.Second
	pauseAfterDeath = 15 * time.Second // until ejections have ended
	pauseAfterFlush = time.Second
)

// quiet measures a proxy on a node on which nothing else happens: its CPU time,
// with the connections of the measurement only and with many others, and what
// clients see of the first fault after a quiet time, and of the next ones.
func (b *bench) quiet(
	ctx context.Context, r *report.Report, w *world, node *stage.Node, client *lab.Namespace,
) error {
	if b.idle == 0 {
		return nil
	}
	for _, connections := range []int{0, b.connections} {
		if err := w.talk(node.Pod.Namespace, connections); err != nil {
			return err
		}
		used, err := b.idleCPU(ctx, node)
		if err != nil {
			return err
		}
		r.AddRow("Idle", report.Label("proxy", node.Proxy), report.Number("connections", connections),
			report.Value("CPU time in a second", report.Seconds, used.Seconds()/b.idle.Seconds()))
	}
	death := fault{
		name: "1 of 10 endpoints dies", pause: pauseAfterDeath,
		begin: func() error { return w.route(1, (*lab.Namespace).Blackhole) },
		end:   func() error { return w.route(1, (*lab.Namespace).RemoveRoute) },
	}
	flush := fault{
		name: "flush ruleset", pause: pauseAfterFlush,
		begin: func() error { return node.Pod.Command(ctx, "nft", "flush", "ruleset").Run() },
		end:   func() error { return nil },
	}
	for _, f := range []fault{death, flush} {
		if !lab.Sleep(ctx, b.settle) {
			return context.Cause(ctx)
		}
		err := errors.Join(b.measureFaults(ctx, r, w, node, f, "a quiet time", 1),
			b.measureFaults(ctx, r, w, node, f, "a fault", b.faults))
		if err != nil {
			return err
		}
	}
	for _, n := range b.floods {
		death.before = func() error { return flood(client, node.Pod.Addrs()[0], n) }
		after := fmt.Sprintf("%d unanswered attempts of another Service", n)
		if err := b.measureFaults(ctx, r, w, node, death, after, b.faults); err != nil {
			return err
		}
	}
	return nil
}

// fault is a fault that ends with its repair and a pause.
type fault struct {
	name       string
	before     func() error // before clients connect, nil for nothing
	begin, end func() error
	pause      time.Duration
}

// measureFaults makes a fault several times, after something.
func (b *bench) measureFaults(
	ctx context.Context, r *report.Report, w *world, node *stage.Node, f fault, after string, times int,
) error {
	clients := newFates()
	for range times {
		if f.before != nil {
			if err := f.before(); err != nil {
				return err
			}
		}
		err := b.connectDuring(ctx, w, node, clients, f)
		if err = errors.Join(err, f.end()); err != nil {
			return err
		}
		if !lab.Sleep(ctx, min(b.idle, f.pause)) {
			return context.Cause(ctx)
		}
	}
	figures := []report.Figure{
		report.Label("proxy", node.Proxy), report.Label("after", after), report.Number("faults", times),
	}
	r.AddRow(f.name, append(figures, clients.figures()...)...)
	return nil
}

// connectDuring connects to the ClusterIP, and makes a fault meanwhile.
func (b *bench) connectDuring(ctx context.Context, w *world, node *stage.Node, clients *fates, f fault) (err error) {
	to := target{"tcp", netip.AddrPortFrom(w.clusterIP[0], 80)}
	clients.faultAt = time.Now().Add(faultAt)
	connected := make(chan struct{})
	go func() {
		defer close(connected)
		lasts := faultAt + min(b.idle, faultLasts)
		clients.connect(ctx, node.Pod.DialContext, []target{to}, b.quietRate, time.Now(), lasts)
	}()
	if lab.Sleep(ctx, time.Until(clients.faultAt)) {
		err = f.begin()
	}
	<-connected
	return err
}

// idleCPU returns the CPU time of the proxy and its children while nothing
// happens.
func (b *bench) idleCPU(ctx context.Context, node *stage.Node) (time.Duration, error) {
	if !lab.Sleep(ctx, b.settle) {
		return 0, context.Cause(ctx)
	}
	before, err := cpuTime(node.Process.PID)
	if err != nil {
		return 0, err
	}
	if err := node.Process.Pause(b.idle); err != nil {
		return 0, err
	}
	after, err := cpuTime(node.Process.PID)
	return after - before, err
}

// cpuTime returns the CPU time of a process, to the nanosecond for its threads,
// and to 10 ms for its children.
func cpuTime(pid int) (time.Duration, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, err
	}
	threads, err := procfs.AllThreads(pid)
	total := time.Duration(stat.CUTime+stat.CSTime) * (time.Second / 100)
	for _, thread := range threads {
		var used int64
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, thread.PID))
		if err == nil {
			_, err = fmt.Sscan(string(text), &used)
		}
		if err != nil {
			return 0, err
		}
		total += time.Duration(used)
	}
	return total, err
}

// talk makes the node track connections: answered UDP flows of its own to the
// ClusterIPs, which stay for an hour.
func (w *world) talk(node *lab.Namespace, connections int) error {
	const first = 1024 // source port
	err := node.SetSysctl("net.netfilter.nf_conntrack_udp_timeout", "3600")
	if err != nil {
		return err
	}
	answer := make([]byte, 512)
	for i := range connections {
		family, port := i%2, first+i/2
		from := &net.UDPAddr{IP: node.Addrs()[family].AsSlice(), Port: port}
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.clusterIP[family], 53))
		err := node.Do(func() error {
			conn, err := net.DialUDP("udp", from, to)
			if err != nil {
				return err
			}
			defer conn.Close()
			if _, err = conn.Write(question); err == nil {
				conn.SetReadDeadline(time.Now().Add(resolverTimeout))
				_, err = conn.Read(answer)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
	}
	return nil
}
