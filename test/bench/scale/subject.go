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
	tracing string
	starts  int
	account *account // nil while the proxy does not run
}

// start starts the proxy. Its account begins with its first system call.
func (s *subject) start(ctx context.Context) (err error) {
	s.starts++
	name := fmt.Sprintf("nftproxy-scale-%d-%s-%d", os.Getpid(), s.Pod.Name, s.starts)
	if s.account, err = newAccount(s.tracing, name); err != nil {
		return err
	}
	attributes := syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(s.account.fd.Fd())}
	return s.Start(ctx, attributes, func() error { return s.account.follow(unix.Gettid()) })
}

// stop ends the proxy. Its table stays.
func (s *subject) stop() (err error) {
	s.Stop()
	if s.account != nil {
		err = s.account.close()
		s.account = nil
	}
	return err
}

// remove ends the proxy and removes the node, unless there is none.
func (s *subject) remove() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.stop(), s.Remove())
}

// series collects measurements of one kind.
type series struct {
	latency, floor, above, cpu, longest report.Sample // times
	sends, sent, received               report.Sample
	lost                                bool
}

// measure calls f and adds the CPU time and traffic of the proxy meanwhile.
func (s *subject) measure(to *series, f func() error) error {
	s.account.takeTraffic()
	before, err := s.account.cpu()
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return s.charge(to, before)
}

// charge adds the CPU time since before, and the traffic.
func (s *subject) charge(to *series, before time.Duration) error {
	after, err := s.account.cpu()
	t := s.account.takeTraffic()
	to.cpu.Add(after - before)
	to.sends, to.sent = append(to.sends, float64(t.sends)), append(to.sent, float64(t.sent))
	to.received = append(to.received, float64(t.received))
	to.longest.Add(t.longest)
	to.lost = to.lost || t.lost
	return err
}

// settle waits until the proxy has been idle for so long that it would
// execute a change without delay.
func (s *subject) settle() error {
	const (
		look   = 50 * time.Millisecond
		little = 5 * time.Millisecond // of CPU time in a look: timers take less, every sync takes more
		limit  = time.Minute
	)
	idle := 1200 * time.Millisecond // minSyncPeriod of kube-proxy is 1 s
	if s.Proxy == stage.Product || s.Proxy == stage.Counting {
		idle = 200 * time.Millisecond
	}
	var before time.Duration
	began, busy := time.Now(), time.Now()
	for time.Since(busy) < idle && time.Since(began) < limit {
		now, err := s.account.cpu()
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
func (s *subject) memory() ([]report.Figure, error) {
	proc, err := procfs.NewProc(s.Process.PID)
	if err != nil {
		return nil, err
	}
	status, err := proc.NewStatus()
	peak := max(s.account.takePeak(), int64(status.VmRSS))
	return []report.Figure{
		report.Value("VmRSS", report.Bytes, float64(status.VmRSS)),
		report.Value("VmHWM", report.Bytes, float64(status.VmHWM)),
		report.Value("with children", report.Bytes, float64(peak)),
	}, err
}
