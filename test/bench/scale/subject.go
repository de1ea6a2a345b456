package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
)

// subject is a node whose proxy is observed.
type subject struct {
	*stage.Node
	world  *world
	starts int
	group  *group // nil while the proxy does not run
	trace  *trace
}

func (w *world) newSubject(ctx context.Context, proxy string) (*subject, error) {
	n, err := w.NewNode(ctx, proxy)
	if err != nil {
		return nil, err
	}
	return &subject{Node: n, world: w}, nil
}

// start starts the proxy in a new control group. The trace begins with its first
// system call.
func (s *subject) start(ctx context.Context) (err error) {
	s.starts++
	name := fmt.Sprintf("nftproxy-scale-%d-%s-%d", os.Getpid(), s.Pod.Name, s.starts)
	if s.group, err = newGroup(name); err != nil {
		return err
	}
	attributes := syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(s.group.fd.Fd())}
	err = s.Start(ctx, attributes, func() (err error) {
		s.trace, err = follow(s.world.tracing, name, unix.Gettid())
		return err
	})
	if err != nil {
		err = errors.Join(err, s.stop())
	}
	return err
}

// stop ends the proxy. Its table stays.
func (s *subject) stop() error {
	s.Stop()
	var errs []error
	if s.group != nil {
		errs = append(errs, s.group.close())
	}
	if s.trace != nil {
		errs = append(errs, s.trace.close())
	}
	s.group, s.trace = nil, nil
	return errors.Join(errs...)
}

// remove ends the proxy and removes the node.
func (s *subject) remove() error { return errors.Join(s.stop(), s.Remove()) }

// series collects measurements of one kind.
type series struct {
	latency, floor, above          report.Sample
	cpu                            report.Sample
	sends, sent, received, longest report.Sample
	lost                           bool
}

// measure calls f and adds the CPU time and traffic of the proxy meanwhile.
func (s *subject) measure(to *series, f func() error) error {
	s.trace.take()
	before, err := s.group.cpu()
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return s.account(to, before)
}

// account adds the CPU time since before, and the traffic.
func (s *subject) account(to *series, before time.Duration) error {
	after, err := s.group.cpu()
	t := s.trace.take()
	to.cpu.Add(after - before)
	to.sends, to.sent = append(to.sends, float64(t.sends)), append(to.sent, float64(t.sent))
	to.received = append(to.received, float64(t.received))
	to.longest.Add(t.longest)
	to.lost = to.lost || t.lost
	return err
}

// settle waits until the proxy has been idle for so long that it would execute a
// change without delay.
func (s *subject) settle() error {
	const (
		look   = 50 * time.Millisecond
		little = 5 * time.Millisecond // of CPU time in a look: timers take less, every sync takes more
		limit  = time.Minute
	)
	idle := 200 * time.Millisecond
	if s.Proxy == stage.Upstream {
		idle = 1200 * time.Millisecond // its minSyncPeriod is 1 s
	}
	var before time.Duration
	began, busy := time.Now(), time.Now()
	for time.Since(busy) < idle && time.Since(began) < limit {
		now, err := s.group.cpu()
		if err != nil {
			return err
		}
		if now-before > little {
			busy = time.Now()
		}
		before = now
		if err := s.Process.Pause(look); err != nil {
			return err
		}
	}
	return nil
}

// memory returns VmRSS, VmHWM, and the peak of all processes since the last
// call.
func (s *subject) memory(phase string) ([]report.Figure, error) {
	proc, err := procfs.NewProc(s.Process.PID)
	if err != nil {
		return nil, err
	}
	status, err := proc.NewStatus()
	if err != nil {
		return nil, err
	}
	peak := max(float64(s.group.takePeak()), float64(status.VmRSS))
	return []report.Figure{
		report.Value(phase, report.Bytes, float64(status.VmRSS)),
		report.Value(phase+" high water", report.Bytes, float64(status.VmHWM)),
		report.Value(phase+" with children", report.Bytes, peak),
	}, nil
}
